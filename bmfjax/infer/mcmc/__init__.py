"""Kernels for `numpyro.infer.MCMC`, and the way from its samples to ArviZ."""
