"""What a matrix is, where it comes from and how it is kept; no model and no sampler."""

from bmfjax.data.datasets import Dataset, datasets
from bmfjax.data.errors import InputError
from bmfjax.data.generate import Synthetic, generate_product, generate_tiles, thesis_matrix
from bmfjax.data.load import load, load_truth
from bmfjax.data.load_ratings import load_ratings
from bmfjax.data.load_real import load_real
from bmfjax.data.matrix import BinaryMatrix
from bmfjax.data.nmf_problems import NMFProblem, embedded, laurberg, solution_line
from bmfjax.data.packed import boolean_product, count_errors, pack_bits, unpack_bits
from bmfjax.data.ratings import Ratings
from bmfjax.data.real import RealMatrix
from bmfjax.data.storage import Truth, save

__all__ = [
    "BinaryMatrix",
    "Dataset",
    "InputError",
    "NMFProblem",
    "Ratings",
    "RealMatrix",
    "Synthetic",
    "Truth",
    "boolean_product",
    "count_errors",
    "datasets",
    "embedded",
    "generate_product",
    "generate_tiles",
    "laurberg",
    "load",
    "load_ratings",
    "load_real",
    "load_truth",
    "pack_bits",
    "save",
    "solution_line",
    "thesis_matrix",
    "unpack_bits",
]
