"""Ratings: factors, effects and cut points given lists of observed entries."""
