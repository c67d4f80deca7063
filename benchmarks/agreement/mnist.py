"""Of which parts are handwritten digits made?

MNIST (LeCun, Cortes and Burges), the 10,000 test images of 28 x 28 pixels; a pixel is a one where
it is darker than one half. A tenth of the pixels is hidden and predicted, beside a calibrated
nonnegative factorisation and the share of ones of each pixel (`long_matrix.py`). The picture shows
what each factor adds: its pixels, and how many images use it.

The images come from a folder with the publisher's file ``t10k-images-idx3-ubyte`` (or with
``.gz``).

    python -m benchmarks.agreement.mnist --folder FOLDER
"""

import gzip
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.agreement.long_matrix import hidden_tenth, one_case
from benchmarks.device import script
from benchmarks.form import page
from bmfjax.data import BinaryMatrix, InputError

NAME, SIDE, TEST = "t10k-images-idx3-ubyte", 28, 10_000
HEADER, MAGIC = 16, 2051


def from_folder(folder: Path) -> np.ndarray:
    """Images (image, pixel) of the publisher's file, from 0 to 255."""
    for path, opened in ((folder / NAME, open), (folder / f"{NAME}.gz", gzip.open)):
        if path.is_file():
            with opened(path, "rb") as file:
                raw = file.read()
            if int.from_bytes(raw[:4], "big") != MAGIC:
                raise InputError(f"{path} is no file of images; give the publisher's")
            return np.frombuffer(raw, np.uint8, offset=HEADER).reshape(-1, SIDE**2)
    raise InputError(f"{folder} has no {NAME} or {NAME}.gz; give the publisher's folder")


def draw(fit, path: Path) -> None:
    """Pixels of every factor by their probability, the most used first."""
    used = (fit.usage > 0.5).mean(0)
    order = np.argsort(-used)
    figure = Figure(figsize=(10, 2.1 * -(-len(order) // 8)))
    axes = figure.subplots(-(-len(order) // 8), 8, squeeze=False).ravel()
    for axis in axes:
        axis.axis("off")
    for axis, k in zip(axes, order, strict=False):
        axis.imshow(fit.basis[:, k].reshape(SIDE, SIDE), cmap="Blues", vmin=0, vmax=1)
        axis.set_title(f"{100 * used[k]:.0f} %", fontsize=9)
    figure.suptitle("Probability of each pixel in each factor, and share of the images that use it")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


ANSWER = """
Mostly of pieces of strokes, by 16 Boolean factors of the 10,000 test images of MNIST. But the four
chains do not agree: 8 of the 16 factors are found by all, and the R-hat of the log joint is 3.285.

![Probability of each pixel in each factor, and the share of the images that use it](results/mnist.png)

| | mean log probability of the hidden tenth |
| --- | --- |
| Boolean, four chains | -0.2123 |
| nonnegative factorisation, calibrated | -0.1690 |
| share of ones of each pixel | -0.2608 |

A nonnegative factorisation of the same rank predicts hidden pixels better. The fit had 240 s of
sampling, on a core that other work shared.
"""  # noqa: E501


@page(__doc__, notes=[("605eee4", "other work ran beside it, on the same core")])
def tables(records: dict):
    yield "![Pixels of each factor, and the share of the images that use it](mnist.png)"
    yield from hidden_tenth(records)


@script(__doc__, folder=dict(type=Path, required=True, help=f"with {NAME}"), rank=16,
        images=(TEST, "use only the first so many"),
        max_time=(180.0, "seconds of sampling"))  # fmt: skip
def main(options):
    data = BinaryMatrix(from_folder(options.folder)[: options.images] > 127)
    fits = []
    found = one_case(data, options.rank, max_time=options.max_time, keep=fits.append)
    chosen = {n: getattr(options, n) for n in ("rank", "images", "max_time")}
    yield chosen | found
    draw(fits[0], options.results / "mnist.png")
