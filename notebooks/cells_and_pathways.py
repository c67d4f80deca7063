# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Cells and tumours with labels
#
# Which genes are on together in which cells? Which pathways are altered together in which tumours?
# A Boolean factor is a set of columns and the rows that have it. The rows here have labels, which
# the fits do **not** see. Afterwards we ask what the factors know of the labels, and what they do
# not know.
#
# Neither matrix may ship with bmfjax. The notebook reads them where two environment variables say:
#
# * `BMFJAX_CELLS`: the file `10x_pbmc68k_reduced.h5ad`, 700 blood cells and 765 genes. The package
#   scanpy has it (folder `scanpy/datasets`).
# * `BMFJAX_PATHWAYS`: a `.csv` table of tumours (rows) by pathways, with the type of cancer in a
#   column `cancer`. The repository TammoR/OrMachine has 8,098 tumours and their types, in its
#   folder `examples/data/pancan`.
#
# Without a file, a matrix is simulated in its place. A fit stops by itself where its chains agree,
# and after three minutes at most; its verdict says whether that was enough.

# %%
import os
import warnings

import anndata
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mutual_info_score
from sklearn.model_selection import StratifiedKFold, cross_val_score

import bmfjax

quick = bool(os.environ.get("BMFJAX_QUICK"))
size = {"max_time": 180}
if quick:  # small enough for a test, and without the hotter chains
    size = {"num_chains": 2, "num_warmup": 60, "num_samples": 60}
    size |= {"sampler": bmfjax.Gibbs(update="collapsed")}
RANK = 4


def simulated(rows, columns, name):
    """Three kinds of rows with two sets of columns each, one of them shared by two kinds."""
    r = np.random.default_rng(0)
    kind = r.integers(0, 3, rows)
    has = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0]])[kind]
    sets = r.random((RANK, columns)) < 0.25
    ones = (has @ sets > 0) ^ (r.random((rows, columns)) < 0.1)
    labels = np.array([f"kind {k + 1}" for k in kind])
    return bmfjax.BinaryMatrix(ones, row_labels=labels, name=f"simulated {name}")


# %% [markdown]
# ## Cells
#
# The file keeps scaled expression in `X` and the measured one in `raw`. A gene is on in a cell
# where it was detected at all. A gene that is on but was not detected is a zero; the model's flips
# account for it.


# %%
def blood_cells(path):
    """Detected genes, with names and the cell types of the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the file has an older layout
        cells = anndata.read_h5ad(path)
    return bmfjax.BinaryMatrix(
        cells.raw.X > 0,
        row_names=cells.obs_names,
        column_names=cells.raw.var_names,
        row_labels=cells.obs["bulk_labels"],
        name="blood cells",
    )


path = os.environ.get("BMFJAX_CELLS")
cells = simulated(150, 30, "cells") if quick or not path else blood_cells(path)
print(cells)
pd.Series(cells.row_labels).value_counts()

# %%
cell_fit = bmfjax.fit(cells, bmfjax.OrMachine(RANK), seed=0, progress=False, **size)
print(cell_fit.verdict)

# %% [markdown]
# Read that sentence before the rest. If chains disagree on some factors, the means below are over
# several solutions, and only what all chains found should be taken as a finding: `agreement` has
# it for each factor.

# %%
cell_fit.summary()

# %% [markdown]
# ### Which cells have which factor
#
# The mean usage of every factor by the type of the cells:


# %%
def usage_by_label(fit):
    """Mean posterior probability that a row uses a factor, by label; largest classes first."""
    labels = pd.Series(fit.data.row_labels)
    names = [f"factor {k + 1}" for k in range(fit.rank)]
    means = pd.DataFrame(fit.usage, columns=names).groupby(labels.to_numpy()).mean()
    return means.loc[labels.value_counts().index]


def draw(table, title):
    """Draw a table of probabilities as a picture."""
    figure, axes = plt.subplots(
        figsize=(2.2 + 0.6 * table.shape[1], 1.4 + 0.22 * len(table)), layout="constrained"
    )
    image = axes.imshow(table, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    axes.set_xticks(range(table.shape[1]), [str(k + 1) for k in range(table.shape[1])])
    axes.set_yticks(range(len(table)), table.index, fontsize=8)
    axes.set_xlabel("factor")
    axes.set_title(title, fontsize=10)
    figure.colorbar(image, label="mean usage")
    plt.show()


of_cells = usage_by_label(cell_fit)
draw(of_cells, f"{cells.name}: who uses which factor")

# %%
spread = np.ptp(of_cells.to_numpy(), axis=0)
assert spread.max() > 0.5, "no factor separates types of cells"

# %% [markdown]
# ### Which genes a factor has
#
# For each factor the genes that are on in its cells and seldom on elsewhere. Among the blood cells
# look for known markers: CD79A of B cells, LYZ of monocytes, NKG7 of cytotoxic cells.


# %%
def typical_columns(fit, number=8):
    """List the columns of each factor that are far more frequent in its rows than in others."""
    values, names = np.nan_to_num(fit.data.dense()), np.asarray(fit.data.column_names)
    rows = {}
    for k in range(fit.rank):
        inside = fit.usage[:, k] > 0.5
        if not 0 < inside.sum() < len(inside):
            continue
        gain = values[inside].mean(0) - values[~inside].mean(0)
        gain = np.where(fit.basis[:, k] > 0.5, gain, -1)
        best = [j for j in np.argsort(-gain)[:number] if gain[j] > 0]
        rows[f"factor {k + 1}"] = {"rows": inside.sum(), "typical": ", ".join(names[best])}
    return pd.DataFrame(rows).T


pd.set_option("display.max_colwidth", 100)
typical_columns(cell_fit)

# %% [markdown]
# ### Back to AnnData
#
# scanpy finds the factors in `obsm["X_bmf"]`.

# %%
print(cell_fit.to_anndata())

# %% [markdown]
# ## Tumours
#
# A one says that a pathway is altered in a tumour. The label is the type of cancer.

# %%
path = os.environ.get("BMFJAX_PATHWAYS")
if quick or not path:
    tumours = simulated(150, 30, "tumours")
else:
    tumours = bmfjax.load(path, label_column="cancer")
tumour_fit = bmfjax.fit(tumours, bmfjax.OrMachine(RANK), seed=1, progress=False, **size)
print(f"{tumours.num_rows} tumours, {tumours.num_columns} pathways")
print(tumour_fit.verdict)
draw(usage_by_label(tumour_fit), "tumours: who has which factor")

# %%
typical_columns(tumour_fit)

# %% [markdown]
# ## What do factors know of the labels?
#
# The information that one factor, present or absent, holds on the label, in bits. The last column
# is what there is to know.


# %%
def information(fit):
    """Bits of information on the label, of each factor alone."""
    label = np.asarray(fit.data.row_labels)
    share = pd.Series(label).value_counts(normalize=True).to_numpy()
    bits = {
        f"factor {k + 1}": mutual_info_score(label, fit.usage[:, k] > 0.5) / np.log(2)
        for k in range(fit.rank)
    }
    return bits | {"label": -(share * np.log2(share)).sum()}


both = {"cells": cell_fit, "tumours": tumour_fit}
pd.DataFrame({name: information(fit) for name, fit in both.items()}).T.round(2)

# %% [markdown]
# And all factors together: how many labels does a logistic regression on the usage get right, in
# cross-validation with five folds? Beside it the same from a truncated singular value decomposition
# of the same rank, from all columns, and from the most frequent label alone.


# %%
def right(features, label):
    """Per cent of labels right, cross-validated."""
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    model = LogisticRegression(max_iter=5000)
    return 100 * cross_val_score(model, features, label, cv=folds).mean()


def compared(fit):
    """Per cent right of each description of the rows."""
    label = pd.Series(fit.data.row_labels)
    ones = np.nan_to_num(fit.data.dense())
    ways = {
        "Boolean factors": fit.usage,
        "truncated SVD": TruncatedSVD(RANK, random_state=0).fit_transform(ones),
        "all columns": ones,
    }
    found = {name: right(features, label) for name, features in ways.items()}
    return found | {"most frequent label": 100 * label.value_counts(normalize=True).iloc[0]}


table = pd.DataFrame({name: compared(fit) for name, fit in both.items()}).T
assert (table["Boolean factors"] > table["most frequent label"]).all()
table.round(1)

# %% [markdown]
# A Boolean usage is nearly zero or one: a row says little more than which of a few sets it has. An
# SVD has numbers, which say more of the label and are harder to read. At rank 10 Boolean factors
# know less than an SVD of the same rank, on the blood cells and on the tumours: see "Do Boolean
# factors separate labels?" in `benchmarks/README.md`. Take them to see which columns go together,
# and not as features of a classifier.
