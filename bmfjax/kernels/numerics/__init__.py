"""Distributions, small linear algebra and minibatches that several samplers share."""
