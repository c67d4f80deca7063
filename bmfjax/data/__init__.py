"""What a matrix is, where it comes from and how it is kept; no model and no sampler."""

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.bits import boolean_product, count_errors, pack_bits, unpack_bits
from bmfjax.data.datasets import Dataset, datasets
from bmfjax.data.errors import InputError
from bmfjax.data.io.load import load, load_ratings, load_real, load_truth
from bmfjax.data.io.npz import Truth, save
from bmfjax.data.ratings import Ratings, latest
from bmfjax.data.real import RealMatrix
from bmfjax.data.synthetic import Synthetic, generate_product, generate_tiles, thesis_matrix

__all__ = [
    "BinaryMatrix",
    "Dataset",
    "InputError",
    "Ratings",
    "RealMatrix",
    "Synthetic",
    "Truth",
    "boolean_product",
    "count_errors",
    "datasets",
    "generate_product",
    "generate_tiles",
    "latest",
    "load",
    "load_ratings",
    "load_real",
    "load_truth",
    "pack_bits",
    "save",
    "thesis_matrix",
    "unpack_bits",
]
