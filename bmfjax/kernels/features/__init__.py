"""Binary latent features of rows, whose effects on the log odds of a one add."""
