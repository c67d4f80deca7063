"""What came of each table, figure and question of the papers?

The page "From the papers" of five sources is made here, of no run.

Published figures stand here, and those of ours are looked up in the records by name. A row whose
record is not there yet says so in one word.
"""

import operator
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from benchmarks.form import number, table
from benchmarks.pages import RESULTS, read_records

PAGE = Path(__file__).parents[2] / "docs" / "from-the-papers.md"
NOTEBOOKS = PAGE.parents[1] / "notebooks"
ABSENT = "none"
BETTER = "better than published figures"
BETTER_RUN = "better than the method as published, run here"


class Of(NamedTuple):
    """A figure of a record: keys on the way to it; a dict of keys stands for the one row that fits.

    `made` makes one number of a list, and a number in the record's unit one in that of the page.
    """

    record: str
    path: tuple
    digits: int | None = None
    made: Callable = lambda value: value

    @property
    def is_run_here(self) -> bool:
        """Whether it is from a run of ours, and not from a paper's page or a notebook's output."""
        return "paper" not in self.path and self.path[-1] != "printed"


def figure(way: str, digits: int | None = None, made: Callable = lambda value: value) -> Of:
    """Return a figure by its way, "record: key/key/key"."""
    record, _, path = way.partition(": ")
    return Of(record, tuple(path.split("/")), digits, made)


class Row(NamedTuple):
    """A table, figure or question: what was published, and what is here."""

    item: str
    published: tuple | str  # figures, in the order of `ours`; or what was shown or asked
    ours: tuple[Of, ...] = ()
    #: "lower", "higher", or "nearer" to `aim`; "any" answers a question; None compares nothing.
    better: str | None = None
    read: float = 0.0  # to which published figures can be read off a curve
    shown: str = ""  # a picture of the records, or "notebook: heading"
    said: str = ""
    aim: tuple = ()  # what draws from all solutions have, in the order of `ours`


class Part(NamedTuple):
    """A part of a source, and its rows."""

    title: str
    rows: tuple[Row, ...]
    why: str = ""
    left: str = ""  # by how much it is not better, and what keeps it from that


def part(title: str, *rows: Row, why: str = "", left: str = "") -> Part:
    """Return a part of these rows."""
    return Part(title, rows, why, left)


# ---- the figures ---------------------------------------------------------------------------------


def _of_table_3_2(rows) -> int:
    """Count the runs that the thesis has: of one matrix, and not of the Beta prior."""
    return sum(row["seed"] == 0 and row["prior"] != "Beta" for row in rows)


def _thesis(prior: str, digits: int | None = None, **of) -> Of:
    """Return the wrong entries at the best threshold of a run that repeats one of the thesis."""
    keys = {"prior": prior, "seed": 0, "draws": 60000, "rank": 30, **of}
    return Of("thesis_tables", ("rows", keys, "error"), digits)


def _beside_exact(data: str, sampler: str, of: str, digits: int) -> Of:
    """Return what parts a sampler's draws at precision 1 from those of a long exact chain."""
    keys = {"data": data, "start": "optimum", "precision_is": "1", "sampler": sampler}
    return Of("thesis_samplers", ("rows", keys, of), digits)


def _exact(data: str, start: str) -> Of:
    """Return the wrong entries of the exact sampler with the precision learned."""
    keys = {"data": data, "start": start, "precision_is": "learned", "sampler": "exact"}
    return Of("thesis_samplers", ("rows", keys, "error"))


def _optimised(matrix: str, method: str) -> Of:
    """Return the wrong entries beside the noise-free matrix."""
    return figure(f"optimisers_thesis: thesis/{matrix}/{method}/errors_noise_free")


def _pulled(way: str) -> Of:
    """Return the wrong entries of PanPal from uniform numbers."""
    return figure(f"panpal_pull: from_uniform_numbers/30/{way}/wrong")


def _trusted(way: str, test: str) -> Of:
    """Return the wrong entries of TrustPal on a noisy matrix."""
    return figure(f"trustpal: matrices/8x8 noisy/ways/{way}/{test}/wrong")


def _coverage(size: str, of: str, sampler: str, figure: str, digits: int) -> Of:
    """Return the mean over the repetitions of a figure of a set of the coverage study."""
    path = ("sets", f"{size}, {of}", sampler, figure)
    return Of(f"nmf_coverage_{size}", path, digits, lambda each: each[0])


def _balls(draws: str, count: str, places) -> tuple[Of, ...]:
    """Return balls that cover draws, at the radii in these places."""
    path = ("sets", draws, "balls", count)
    return tuple(Of("covering_numbers", path, 1, operator.itemgetter(place)) for place in places)


def _modes(size: str, figure: str, sampler: str, digits: int, sets=None, aim=False) -> dict:
    """Return figures of Gibbs as published, and of a sampler here, for sets of one size.

    An aim is what draws from all solutions that the paper knows have, which are drawn here too.
    """
    sets = sets or ("one mode", "two modes", "infinite modes")
    paper = ("paper", "Gibbs", figure)
    found = {
        "published": tuple(
            Of(f"nmf_coverage_{size}", ("sets", f"{size}, {of}", *paper), digits) for of in sets
        ),
        "ours": tuple(_coverage(size, of, sampler, figure, digits) for of in sets),
    }
    if aim:
        found["better"] = "nearer"
        found["aim"] = tuple(_coverage(size, of, "All Modes", figure, digits) for of in sets)
    return found


def _recall(kind: str, method: str) -> Of:
    return figure(f"logistic_recall_{kind}: table/{method}/recall", 3)


def _right(record: str, model: str, shares) -> tuple[Of, ...]:
    """Return per cent of the ratings on the right side of the mean."""
    path = ("observed_percent",)
    return tuple(Of(record, (*path, s, model, "percent_right", "mean"), 1) for s in shares)


def _million(model: str) -> tuple[Of, ...]:
    """Return the same of MovieLens 1M at all shares, which two records have."""
    return tuple(
        figure
        for share in SHARES
        for record in ("movielens_1m" if share in SOME else "movielens_1m_shares",)
        for figure in _right(record, model, (share,))
    )


def _layers(shares) -> tuple[Of, ...]:
    path, model = ("movielens", "observed_percent"), "OrMachine, layers 5 and 2"
    record = "boolean_peers_movielens"
    return tuple(Of(record, (*path, s, model, "percent_right", "mean"), 1) for s in shares)


def _digits(*cases: str) -> tuple[Of, ...]:
    return tuple(figure(f"calculator_digits_causes: cases/{case}/wrong/mean", 2) for case in cases)


def _started(*cases: str) -> tuple[Of, ...]:
    return tuple(figure(f"calculator_digits_starts: cases/{case}/wrong/mean", 2) for case in cases)


def _flips(size: str, shares) -> tuple[Of, ...]:
    path = ("problems", size, "longer")
    return tuple(Of("ormachine_factorisation", (*path, s, "mean"), 4) for s in shares)


DATA = ("clean", "noisy")
SHARES = ("1", "5", "10", "20", "50", "95")
SOME = ("1", "20", "95")
NO_DATA = "the data could not be had"
DRAWN_ANEW = "the data are drawn anew, and not those of the paper"
PRECONDITIONED = (
    "IASG thesis, batch 64",
    "IASG corrected, batch 64",
    "SGLD logit, batch 64, h 0.1",
    "SGLD by default, batch 64",
    "AuxiliaryGibbs, batch 64",
)
THESIS = "thesis_figure_4_{:02d}.png"
RETOLD, RATINGS, SOLUTIONS = "thesis_retold: ", "gibbs_for_ratings: ", "nmf_solutions: "
SLOWLY = "two layers, joined slowly, best of eight starts"
SWEEP = "100,000 x 1,000, rank 20"
CROSSINGS = ("sets", "large, two modes", "Gibbs behind walls")
#: Why a larger angle is not called better on the large sets.
MORE = "not compared: there are more solutions than the paper counts, of no lower likelihood"

GONSIOR = (
    part("Gonsior (2019): what the methods are",
        Row("2.1", "parts by NMF, wholes by PCA", shown=SOLUTIONS + "Parts, and wholes"),
        Row("2.2, 2.3", "a matrix whose lines are ordered", shown=RETOLD + "The data"),
        Row("2.4", "gradient descent", shown=RETOLD + "Descent, and a step back"),
        Row("2.5", "the proximal operator", shown=RETOLD + "Descent, and a step back"),
        Row("2.6", "rejection sampling", shown=RATINGS + "Rejection, and Langevin"),
        Row("2.7", "a Langevin diffusion", shown=RATINGS + "Rejection, and Langevin"),
        Row("3.1 to 3.3", "priors, product and minibatches",
            shown=RETOLD + "Priors and minibatches"),
        Row("3.4, 3.5, table 3.1", "factors, data and noise", shown=RETOLD + "The data"),
        left="These are pictures of methods, and nothing is measured.",
    ),
    part("Gonsior (2019): PAL-Tiling, the optimiser that is relaxed (wrong entries, two matrices)",
        Row("8 x 8 tiles, clean, one matrix", (_pulled("as published"),),
            (_pulled("a pull that grows, ones free"),), "lower",
            said="PanPal with a pull that grows and free ones"),
        *(
            Row(f"8 x 8 tiles, {noise}, two matrices",
                tuple(_optimised(f"8x8 {noise}, {k}", "PanPal") for k in (0, 1)),
                tuple(_optimised(f"8x8 {noise}, {k}", "Boolean posterior") for k in (0, 1)),
                said="not compared: ours is another method, the Boolean posterior")
            for noise in ("clean", "noisy")
        ),
        Row("TrustPal on noisy 8 x 8 tiles, after the search and inside it, one matrix",
            tuple(_trusted("as published", test) for test in ("after", "inside")),
            tuple(_trusted("a pull that grows, ones free", test) for test in ("after", "inside")),
            said="not compared: the search with a pull that grows finds few tiles too, and no test "
                 "mends that"),
        why="The thesis gives no figure of it, but the programs PanPal and TrustPal. As published "
            "they hardly find a tile of 8 x 8 on matrices of ours. PanPal finds them on a clean "
            "one with a pull that grows; TrustPal finds few on a noisy one either way.",
    ),
    part("Gonsior (2019): tables 4.1 and 4.2, figure 4.12",
        Row("4.1, clean and noisy, the best of all runs from random starts", (72, 407),
            (_exact("clean", "random"), _exact("noisy", "random")), "lower",
            said="ours is the exact sampler with the precision learned"),
        Row("the same, Boolean chains (mean of ten noisy matrices)", (407,),
            (
                figure(
                    "ormachine_starts_8x8_noisy: matrices", 1,
                    lambda found: mean(mean(one["errors"]) for one in found.values()),
                ),
            ),
            "lower"),
        Row("4.2, clean and noisy, the worst run from the optimum", (0, 111),
            (_exact("clean", "optimum"), _exact("noisy", "optimum")), "lower"),
        *(
            Row(item, published,
                tuple(
                    _thesis(prior, data=data, start="random", batch=75)
                    for prior in ("flat", "Normal", "PanPAL")
                ),
                said="not compared: the thesis's sampler on a matrix of ours, where chains are "
                     "still on their way after 60,000 draws")
            for item, data, published in (
                ("4.1, clean, IASG as published: flat, Normal and Laplace prior, batch 75",
                 "clean", (72, 713, 1919)),
                ("4.1, noisy, the same", "noisy", (722, 407, 1919)),
            )
        ),
        Row("4.12", "intervals of the best threshold", shown=THESIS.format(12)),
    ),
    part("Gonsior (2019): table 3.2 and figures 4.1 to 4.11",
        Row("table 3.2, runs", "134 runs",
            tuple(
                figure(f"{name}: rows", None, _of_table_3_2)
                for name in (
                    "thesis_tables", "thesis_runs_table_3_2", "thesis_runs", "thesis_runs_noisy",
                )
            ),
            said="in four records, six of them in two: all 134"),
        Row("4.7, two million noisy draws", "not shown", shown="thesis_figure_4_07_noisy.png"),
        *(
            Row(f"4.{k}", what, shown=THESIS.format(k))
            for k, what in enumerate(
                (
                    "the log density at the start", "three variables, flat prior",
                    "the same, Normal prior", "images of the means",
                    "histograms after 60,000 draws", "the same after 600,000",
                    "means and standard deviations", "the same for all priors",
                    "means and mean gradients", "rank 20", "rank 40",
                ),
                1,
            )
        ),
        *(
            Row(f"4.7, {what} from the optimum, clean and noisy",
                tuple(_beside_exact(data, "IASG published", of, digits) for data in DATA),
                tuple(_beside_exact(data, "exact, again", of, digits) for data in DATA),
                said=f"not compared, as an exact chain can't lose: {how}")
            for what, of, digits, how in (
                (
                    "standard deviations", "sd_ratio", 3,
                    "median ratio to those of another exact chain",
                ),
                (
                    "means", "mean_difference", 2,
                    "root mean square of the differences from that chain's, in its standard "
                    "deviations",
                ),
            )
        ),
        Row("wrong entries of the same chains, clean and noisy",
            tuple(_beside_exact(data, "IASG published", "error", None) for data in DATA),
            tuple(_beside_exact(data, "exact, again", "error", None) for data in DATA),
            said="not compared: at precision 1 the exact posterior reconstructs nothing"),
        why="All runs of table 3.2 are here, and all figures are drawn.",
        left="The thesis reads means and standard deviations off these pictures as what the "
             "posterior knows. Those of its sampler, run here from the optimum, are far from its "
             "posterior. But they are held against a second chain of our exact sampler, which "
             "cannot lose; at precision 1 that posterior has all 1,920 entries wrong, where the "
             "thesis's sampler has 0 and 78; and chains from random starts are not compared.",
    ),
    part("Gonsior (2019): the questions of chapter 5",
        Row("a probabilistic rule of binarisation?", "left open",
            (figure("tile_fdr: posterior/share_false", 3),), "any",
            said="share of false tiles among those kept at a false discovery rate of 0.05"),
        Row("1, a preconditioner for functions that are locally Lipschitz?", "left open",
            tuple(
                figure(f"bias_table: tables/512x512/rows/{way}/mean", 3)
                for way in PRECONDITIONED
            ),
            "any",
            said="none that bounds leave right: IASG by Fisher information and by the curvature of "
                 "a block, a mirror map that mixes slowly, reflection, and auxiliary variables; "
                 "error of the means in posterior standard deviations"),
        Row("2, bounds that do not skew the posterior?", "left open",
            (
                figure("bias_table: tables/512x512/rows/SGLD clamp, batch 64, h 0.1/mean", 3),
                figure("bias_table: tables/512x512/rows/AuxiliaryGibbs, batch 64/mean", 3),
            ),
            "any", said="error of the means in posterior standard deviations, clamped and here"),
        Row("3, a model whose rank is random?", "left open",
            (figure("rank_recovery_tiles: exact"), figure("rank_recovery_tiles: fits")), "any",
            said="fits whose most probable number of tiles is right, and all fits"),
        Row("the same of the relaxed model, two noisy matrices of 30 tiles of 8 x 8", "left open",
            tuple(
                figure(f"optimisers_thesis: thesis/8x8 noisy, {k}/{method}/rank")
                for method in ("relaxed posterior", "Boolean posterior")
                for k in (0, 1)
            ),
            said="tiles found by the relaxed model, which fails here, and by the Boolean one"),
        Row("4, what have uncertainty and ambiguity in common?", "left open",
            (
                figure("ambiguity: rows/rank 30, from random/explained", 2),
                figure("ambiguity: rows/rank 40, from random/explained", 2),
            ),
            "any", said="share of the log variance that the mean explains, right rank and above"),
        left="Nothing was published that an answer could be better than.",
    ),
)  # fmt: skip

RUKAT = (
    part("Rukat et al. (2017): random products",
        Row("factorised, 1,000 x 1,000, 40 and 45 % flips", (0.0, 0.23),
            _flips("1000x1000, rank 5", ("0.4", "0.45")), "lower", read=0.03,
            said="the curve can be read to 0.03"),
        Row("factorised, 100 x 100, 20, 30, 40 and 45 % flips", (0.015, 0.15, 0.325, 0.405),
            _flips("100x100, rank 7", ("0.2", "0.3", "0.4", "0.45")), "lower", read=0.03),
        Row("completed, 1 and 2 % observed, their program",
            (
                figure("ormachine_completion: shares/0.01/released_program", 3, mean),
                figure("boolean_peers_products: products/0.02/authors' program/mean", 4),
            ),
            (
                figure("ormachine_completion: shares/0.01/mean", 3),
                figure("boolean_peers_products: products/0.02/OrMachine/mean", 4),
            ),
            "lower"),
        Row("milliseconds of a sweep, their program",
            (figure(f"boolean_peers_sweeps: sweeps/{SWEEP}/authors' program", 0),),
            (figure(f"boolean_peers_sweeps: sweeps/{SWEEP}/bmfjax", 0),), "lower"),
        Row("density of posterior means", "most are near 0 or 1",
            (figure("ormachine_figures: posterior_means/longer/0.1/sure", 3),),
            shown="ormachine_figures_means.png",
            said="share below 0.05 or above 0.95 at 10 % flips"),
        Row("factors used of 20, where 5 are true",
            (figure("ormachine_figures: empty_factors/as published/one half/20/used", 1, mean),),
            (figure("ormachine_figures: empty_factors/as published/learned/20/used", 1, mean),),
            "lower", shown="ormachine_figures_empty.png"),
    ),
    part("Rukat et al. (2017): MovieLens",
        Row("100K, OrMachine, % right at 1, 5, 10, 20, 50 and 95 % observed",
            (57.3, 62.6, 64.4, 66.3, 68.6, 70.0), _right("movielens", "OrMachine, rank 5", SHARES),
            "higher"),
        Row("100K, deep OrMachine; ours has effects in place of layers",
            (58.5, 63.5, 65.2, 66.5, 68.8, 70.1),
            _right("movielens", "OrMachine with effects, rank 5", SHARES), "higher"),
        Row("1M, OrMachine, at the same shares", (63.4, 67.0, 68.5, 69.8, 70.9, 71.2),
            _million("OrMachine, rank 5"), "higher"),
        Row("1M, deep OrMachine; ours has effects in place of layers",
            (63.8, 67.2, 68.6, 70.0, 71.4, 72.1), _million("OrMachine with effects, rank 5"),
            "higher"),
        Row("1M, deep OrMachine at 20 and 95 % observed; ours is `probit`", (70.0, 72.1),
            _right("probit_movielens_1m", "probit, rank 10", ("20", "95")), "higher"),
        Row("the same at all six shares; ours is `probit` by `bmfjax.fit`, 120 processor seconds",
            (63.8, 67.2, 68.6, 70.0, 71.4, 72.1),
            _right("movielens_fits_1m", "probit, rank 10", SHARES), "higher",
            said="at 50 and 95 % cut off before a result has its draws, as the fit warns"),
    ),
    part("Rukat et al. (2017): layers",
        Row("calculator digits, % wrong with one layer and with more", (1.4, 0.4),
            _started("one layer, best of eight starts", SLOWLY), "lower",
            said=(
                "ours begin at the most probable of eight starts a chain and keep five times the "
                "draws, as no fit of this library does by itself; 17 x 10 pixels, as in the paper, "
                "whose figures are of one set of missing pixels"
            )),
        Row("sets of missing pixels, of eight, with at most 0.4, and the spread between sets",
            "one set is shown",
            (
                figure(f"calculator_digits_starts: cases/{SLOWLY}/masks_at_most_published"),
                figure(f"calculator_digits_starts: cases/{SLOWLY}/spread_of_masks", 2),
            ),
            said="two layers; standard deviation, in per cent of all entries"),
        Row("the same from the true segments and digits", "not shown",
            _digits("one layer from the truth", "two layers from the truth"),
            said="shorter chains that start there"),
        Row("100K, deep OrMachine; ours has layers too", (58.5, 63.5, 65.2, 66.5, 68.8, 70.1),
            _layers(SHARES), "higher"),
        Row("calculator digits without noise, wrong of 540 at rank 7", "all are right",
            (figure("calculator_digits_hierarchy: wrong_of_540_by_rank/7"),),
            shown="calculator_digits.png"),
        why="On MovieLens ours with layers is above the published one at every share but the "
            "first, where it is as good, and above ours without them at 95 % alone.",
        left=(
            "On digits one layer has 0.27 % fewer entries wrong than published and two have 0.13 % "
            "more, from the best of eight starts. Chains find the mode: from the true factors they "
            "have as many. The rest lies within the spread between sets of missing pixels, of "
            "which the paper shows one."
        ),
    ),
    part("Rukat et al. (2017): real data",
        Row("1,300,000 cells x 20,000 genes", "fits on a workstation",
            (
                figure("scale: sizes/1,300,000x20,000/peak_bytes", 1, lambda b: b / 1000000000.0),
                figure("scale: sizes/1,300,000x20,000/seconds/a sweep", 1),
            ),
            said="GB and seconds of a sweep on two cores, of a matrix that was made up"),
        Row("MNIST", "shown",
            (figure("mnist: factors_agreeing", 2), figure("mnist: rhat_log_joint", 2)),
            shown="mnist.png",
            said="share of factors that all chains have, and R-hat of the log joint density"),
        Row("tumours and pathways", "shown",
            (
                figure(
                    "ormachine_convergence_pancan-pathways_rank_8_shared_starts: rhat_log_joint", 3,
                ),
            ),
            shown="cells_and_pathways: Tumours",
            said="R-hat of the log joint density at rank 8, from shared starts"),
        Row("single cells", "shown", shown="cells_and_pathways: Cells"),
        Row("Peskun's order", "proved", shown=RATINGS + "Peskun's order"),
        *(
            Row(f"{name}, hidden entries of 400 rows",
                tuple(
                    figure(f"rukat_published: sets/{name}/as published/{of}", 3)
                    for of in ("log_score", "best")
                ),
                tuple(
                    figure(f"rukat_data: sets/{name}/{of}", 3)
                    for of in ("log_score_columns", "ormachine/log_score", "features/log_score")
                ),
                said="not compared, for unequal time and averaging: mean log probability, of ten "
                     "single chains the mean and the best; here the columns' shares of ones, the "
                     "OrMachine and the model of features")
            for name in ("MNIST", "single cells", "tumours")
        ),
        why="MNIST is not settled: half of its factors are found by all chains. On the 400 rows "
            "predictions of the OrMachine hold on none by the verdict; those of the model of "
            "features hold on cells and tumours.",
        left=(
            "The paper shows pictures and scores no hidden entries. Its sampler, run here, "
            "predicts MNIST worse than the columns' shares of ones do. Single chains of 200 sweeps "
            "stand there beside four chains averaged after 150 s, and averaging alone gains."
        ),
    ),
)  # fmt: skip

HERNANDEZ = (
    part("Hernandez-Lobato et al. (2014): recall at 10",
        Row("synthetic, 2,000 rows", (0.368,), (_recall("synthetic", "batch"),), "higher",
            said=DRAWN_ANEW),
        Row("40,000 rows", (0.387,), (_recall("synthetic_large", "batch"),), "higher",
            said=DRAWN_ANEW),
        Row("retail, 2,000 rows", (0.234,), (_recall("retail", "batch, starts averaged"),),
            "higher", said="four starts averaged, as by default; five of 25 repeats"),
        Row("10,000 rows", (0.235,), (_recall("retail_large", "batch, starts averaged"),), "higher",
            said="four starts averaged, as by default"),
        Row("WebView-2, 2,000 rows", (0.398,), (_recall("webview_fit", "fit"),), "higher",
            said="two of 25 repeats"),
        Row("5,000 rows", (0.39,), said=NO_DATA),
        Row("Kosarak, 2,000 and 40,000 rows", (0.388, 0.391), said=NO_DATA),
        Row("BMS-POS, 2,000 and 40,000 rows", (0.373, 0.373), said=NO_DATA),
        Row("Netflix, 2,000 and 40,000 rows", (0.198, 0.203), said=NO_DATA),
        why="That is of the sets that could be had: synthetic, retail, and a part of WebView-2.",
    ),
    part("Hernandez-Lobato et al. (2014): draws of entries",
        Row("biased draws recall more than uniform ones", "by 0.01 to 0.1, read off",
            tuple(
                figure(f"logistic_recall_{kind}: gain/biased/gain", 4)
                for kind in ("synthetic", "synthetic_large", "retail", "retail_large")
            ),
            shown="logistic_recall_synthetic_large.png",
            said="synthetic and retail, small and large"),
        Row("recall of biased draws, synthetic, small and large", (0.368, 0.387),
            tuple(_recall(kind, "biased") for kind in ("synthetic", "synthetic_large")),
            "higher", said=DRAWN_ANEW),
        Row("the same, retail", (0.234, 0.235),
            tuple(_recall(kind, "biased") for kind in ("retail", "retail_large")), "higher",
            said="from one start"),
        Row("the minibatch adapts", "settles soon", shown="logistic_recall_retail.png"),
        why="Biased draws recall most of the three ways on all four sets, as published.",
        left="On retail biased draws recall 0.006 and 0.004 less than the paper's, because the "
             "paper's draws gain over all entries there and ours do not. `fit` takes all entries "
             "and averages starts.",
    ),
)  # fmt: skip

MASOOD = (
    part("Masood et al. (2016): the measures, figures 1 to 4",
        Row("1 to 4", "angles and coverings", shown=SOLUTIONS + "What the measures see"),
        *(
            Row(f"2 to 4, covering number of draws in {modes}, radius 1 and 2.5",
                _balls(f"normal, {modes}", "greedy", (0, 1)),
                _balls(f"normal, {modes}", "fewest", (0, 1)),
                said="as defined: balls counted greedily, as published, and the fewest")
            for modes in ("one mode", "two modes")
        ),
        Row("the same of a line of solutions, radius 0.2 and 0.35 of the largest angle",
            _balls("solutions, small, infinite modes", "greedy", (3, 6)),
            _balls("solutions, small, infinite modes", "fewest", (3, 6)), said="as defined"),
        left=(
            "The paper defines the covering number as the smallest and counts greedily. The "
            "smallest, found here, is at most the greedy count by definition, and a smaller one is "
            "no merit of a posterior. Draws are ours: the paper does not say how many it has."
        ),
    ),
    part("Masood et al. (2016): small sets, one, two and a line of solutions",
        Row("table 1, log likelihood of Gibbs",
            **_modes("small", "log_likelihood", "Gibbs with moves", 1),
            said="not compared: the paper does not state its noise, which scales them"),
        Row("table 2, autocorrelation time of Gibbs", better="lower",
            **_modes("small", "iat", "Gibbs with moves", 1)),
        Row("table 3, largest angle of Gibbs, two solutions",
            **_modes("small", "angle_max", "Gibbs behind walls", 2, ("two modes",), True)),
        Row("table 3, the same, a line",
            **_modes("small", "angle_max", "Gibbs with moves", 2, ("infinite modes",), True)),
        Row("table 4, mean angle of Gibbs, two solutions",
            **_modes("small", "angle_mean", "Gibbs behind walls", 2, ("two modes",)),
            said="not compared: draws from all solutions have 18.45, as they weigh both alike, and "
                 "the noise here gives the second nearly all the weight"),
        Row("table 4, the same, a line",
            **_modes("small", "angle_mean", "Gibbs with moves", 2, ("infinite modes",), True)),
        Row("5 to 7", "persistent coverings", shown="nmf_coverage_small.png"),
        why="Angles are better the nearer they are to those of draws from all solutions, and not "
            "the larger.",
    ),
    part("Masood et al. (2016): large sets, one, two and a line of solutions",
        Row("table 5, log likelihood of Gibbs",
            **_modes("large", "log_likelihood", "Gibbs with moves", 0),
            said="not compared: the paper does not state its noise, which scales them"),
        Row("table 6, autocorrelation time of Gibbs", better="lower",
            **_modes("large", "iat", "Gibbs with moves", 0)),
        Row("table 7, largest angle of Gibbs",
            **_modes("large", "angle_max", "Gibbs with moves", 2), said=MORE),
        Row("table 8, mean angle of Gibbs", **_modes("large", "angle_mean", "Gibbs with moves", 2),
            said=MORE),
        Row("share of the first of two solutions: three chains from it, and one from the other",
            "not asked",
            tuple(
                Of(
                    "nmf_coverage_crossings", (*CROSSINGS, "share_of_the_first_solution"), 2,
                    operator.itemgetter(place),
                )
                for place in (1, 2, 3, 0)
            ),
            said="10,000 draws behind walls: the share depends on the start"),
        Row("the same after 5,000 draws more, which are left out", "not asked",
            tuple(
                Of("nmf_coverage_walls", (*CROSSINGS, "share_of_the_first_solution"), 2, made)
                for made in (max, min)
            ),
            said="the largest and the smallest of all chains: it falls, and is not settled"),
        Row("8 to 10", "persistent coverings", shown="nmf_coverage_large.png"),
        why="That is by the autocorrelation time alone. Angles are not compared, and behind walls "
            "the two solutions are not yet settled.",
    ),
)  # fmt: skip

NOTEBOOK = (
    part("A notebook on Monte Carlo and matrix factorisation",
        Row("Metropolis with three step sizes", "shown",
            shown=RATINGS + "Metropolis: propose a step, then think"),
        Row("Gibbs, one coordinate at a time", "shown",
            shown=RATINGS + "Gibbs: one coordinate at a time, straight from its distribution"),
        Row("two rows by three columns, error of the printed product",
            (figure("notebook_matrix: printed", 4),),
            (figure("notebook_matrix: programs/bmfjax/mean of products/median_error", 4),),
            shown=RATINGS + "Factors of a matrix of two rows and three columns",
            said="not compared: root mean square, of one seed there and the median of 2,000 here"),
        *(
            Row(f"{what}, over 2,000 seeds: median error, and above which one seed in 20 is",
                tuple(
                    figure(f"notebook_matrix: programs/notebook/{estimate}/{of}", 4)
                    for of in ("median_error", "worst_of_20")
                ),
                tuple(
                    figure(f"notebook_matrix: programs/bmfjax/{estimate}/{of}", 4)
                    for of in ("median_error", "worst_of_20")
                ),
                "lower", said=f"as {who} predicts; as many sweeps, ours with a prior")
            for what, estimate, who in (
                ("product of the factors' means", "product of means", "the notebook"),
                ("mean of the products", "mean of products", "this library"),
            )
        ),
        why="The notebook prints one product, of one seed.",
        left=(
            "The notebook multiplies the means of factors, and this library averages products. "
            "When its own draws are averaged so, their median error is 0.0042 and ours 0.0044: the "
            "gain over the 0.0121 of its program is the estimator's."
        ),
    ),
    part("Salakhutdinov and Mnih (2008)",
        Row("MovieLens 100K, Gaussian-Wishart (Brouwer), error of the stars", (0.9086,),
            (figure("pmf_movielens_attributes: models/rank 10/rmse/mean", 4),), "lower"),
    ),
)  # fmt: skip

PARTS = (*GONSIOR, *RUKAT, *HERNANDEZ, *MASOOD, *NOTEBOOK)


# ---- the page ------------------------------------------------------------------------------------


def looked_up(figure: Of, records: dict):
    """Return a figure of the records; None where there is no such record.

    Raises
    ------
    LookupError
        If the record has no such figure.
    """
    if figure.record not in records:
        return None
    found = records[figure.record]["figures"]
    for key in figure.path:
        if isinstance(key, dict):
            fit = [row for row in found if all(row.get(k) == v for k, v in key.items())]
            if len(fit) != 1:
                raise LookupError(f"{figure.record}: {len(fit)} rows are {key}")
            found = fit[0]
        else:
            found = found[key]
    return figure.made(found)


def compared(row: Row, records: dict) -> str | None:
    """Say how ours stands to what was published; None where nothing is compared."""
    if row.better is None:
        return None
    ours = _values(row.ours, records)
    if row.better == "any":
        return ABSENT if None in ours or not ours else "answered"
    published = _values(row.published, records)
    if None in (*published, *ours):
        return ABSENT
    if row.better == "nearer":
        aims = _values(row.aim, records)
        published, ours = (
            [abs(v - aim) for v, aim in zip(values, aims, strict=True)]
            for values in (published, ours)
        )
    sign = 1 if row.better == "higher" else -1
    # As they are printed: what is equal there is called equal.
    gains = [
        sign * (round(b, f.digits or 0) - round(a, f.digits or 0))
        for a, b, f in zip(published, ours, row.ours, strict=True)
    ]
    behind = sum(gain < -row.read for gain in gains)
    if behind:
        worst = number(-min(gains), max(f.digits or 0 for f in row.ours))
        return f"behind in {behind} of {len(gains)}, by {worst} at most"
    return "better" if any(gain > row.read for gain in gains) else "as good"


def _values(figures, records) -> list:
    return [looked_up(f, records) if isinstance(f, Of) else f for f in figures]


def _is_run_here(row: Row) -> bool:
    """Say whether a published method was run here, as no figure of it is published."""
    return any(isinstance(f, Of) and f.is_run_here for f in row.published)


def _written(figures, records) -> str:
    digits = [f.digits if isinstance(f, Of) else None for f in figures]
    values = _values(figures, records)
    return "; ".join(
        ABSENT if value is None else number(value, places)
        for value, places in zip(values, digits, strict=True)
    )


def is_drawn(row: Row) -> bool:
    """Say whether the picture, or the section of a notebook, that a row names is there."""
    name, _, heading = row.shown.partition(": ")
    if not heading:
        return bool(name) and (RESULTS / name).is_file()
    script = (NOTEBOOKS / f"{name}.py").read_text()
    return re.search(rf"^# #+ {re.escape(heading)}$", script, re.MULTILINE) is not None


def _links(row: Row, records: dict) -> str:
    of = [f for f in (*row.ours, *row.published) if isinstance(f, Of)]
    names = dict.fromkeys(f.record for f in of if f.record in records)
    links = [f"{{download}}`record <../benchmarks/results/{name}.json>`" for name in names]
    if is_drawn(row):
        name, _, heading = row.shown.partition(": ")
        place = f"notebooks/{name}.ipynb" if heading else f"benchmarks/results/{name}"
        links.append(f"{{download}}`{'notebook' if heading else 'picture'} <../{place}>`")
    return ", ".join(links) or ABSENT


def line(row: Row, records: dict) -> list[str]:
    """Return the cells of a row."""
    text = isinstance(row.published, str)
    published = row.published if text else _written(row.published, records)
    published += " (run here)" * _is_run_here(row)
    ours = _written(row.ours, records) or ("drawn" if is_drawn(row) else ABSENT)
    stands = compared(row, records) or ""
    if row.said == NO_DATA:
        return [row.item, published, NO_DATA, "not compared", "the paper"]
    if row.aim:
        stands += ", nearer to " * (stands == "better") or ", by the distance to "
        stands += _written(
            tuple(
                f._replace(digits=g.digits) if isinstance(f, Of) else f
                for f, g in zip(row.aim, row.ours, strict=True)
            ),
            records,
        )
    said = "; ".join(part for part in (stands, row.said) if part) or "shown"
    return [row.item, published, ours, said, _links(row, records)]


def state(part: Part, records: dict) -> str:
    """Say in a word or two how a part stands by its rows."""
    stands = rows_stand(part, records)
    drawn = [is_drawn(row) for row in part.rows if row.shown and not row.ours]
    if ABSENT in stands or not all(drawn):
        return "not whole"
    if any(found.startswith("behind") for found in stands):
        return "in part"
    best = (BETTER, BETTER_RUN, "answered", "as good")
    return next((found for found in best if found in stands), "repeated")


def rows_stand(part: Part, records: dict) -> list[str]:
    """Say how rows stand, and of better ones to what."""
    stands = []
    for row in part.rows:
        found = compared(row, records)
        better = BETTER_RUN if _is_run_here(row) else BETTER
        stands += [better if found == "better" else found] if found else []
    return stands


def _counted(found: list[str]) -> str:
    """Make a list of how many there are of each, the best first."""
    count = Counter(found)
    best = (BETTER, BETTER_RUN, "as good", "answered", "in part", "behind in a figure")
    order = sorted(count, key=lambda one: best.index(one) if one in best else len(best))
    return "\n".join(f"- {count[one]} {one}" for one in order)


def text_of(records: dict) -> str:
    """Return the text of the page."""
    states = [state(part, records) for part in PARTS]
    found = [one for part in PARTS for one in rows_stand(part, records)]
    stands = ["behind in a figure" if one.startswith("behind") else one for one in found]
    stands = ["without a record" if one == ABSENT else one for one in stands]
    left = [part for part, one in zip(PARTS, states, strict=True) if not one.startswith("better")]
    blocks = [
        "# From the papers",
        "Here is what five sources published, by table, figure and question, and what came of it.\n"
        "`python -m benchmarks.papers.papers` makes this page from the records. Where a source\n"
        "gives a method and no figure of it, the method as published was run here, and its cell\n"
        'ends in "(run here)".',
        f"The {len(PARTS)} parts are:",
        _counted(states),
        "A part is better if a row of it is and none is behind, and in part if one is behind. An\n"
        "answered one has questions that were left open. A repeated one compares nothing.",
        f"The {len(stands)} rows that compare or answer something are:",
        _counted(stands),
        f"## What is not better\n\n{len(left)} parts are not better, by so much and because:",
        "\n".join(f"- **{part.title}.** {part.left}" for part in left),
    ]
    for part, found in zip(PARTS, states, strict=True):
        blocks.append(f"## {part.title}")
        blocks.append(" ".join(filter(None, (f"This part: {found}.", part.why, part.left))))
        header = ["table, figure or question", "published", "here", "so it is", "from"]
        blocks.append(table(header, [line(row, records) for row in part.rows]))
    blocks.append("Which model your own data need says [Choosing a model](models.md).")
    return "\n\n".join(blocks) + "\n"


ANSWER = """
The page "From the papers" has what the five sources published, and what came of it here.

`python -m benchmarks.papers.papers` makes it from the records.
"""


def main() -> None:
    PAGE.write_text(text_of(read_records(RESULTS)))
    print(PAGE)


if __name__ == "__main__":
    main()
