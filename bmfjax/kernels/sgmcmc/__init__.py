"""Approximate samplers by stochastic gradients, and those that correct them."""
