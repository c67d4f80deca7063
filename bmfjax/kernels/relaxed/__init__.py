"""Factors in an interval under normal noise: the density and its exact sampler."""
