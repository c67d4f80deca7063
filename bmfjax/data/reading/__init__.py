"""The room in which data are read: what is header, name, label, value, one, zero and missing."""
