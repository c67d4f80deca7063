"""Boolean factors: packed words, the density, and exact samplers of bits."""
