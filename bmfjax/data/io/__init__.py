"""Files: readers by ending, and writing that leaves a whole file or none."""
