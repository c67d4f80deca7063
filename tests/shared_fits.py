"""Small fits that many tests and examples look at: made once a run, for all its workers.

They are stored in a folder of this run and loaded, so that no code but that under test makes them.
"""

import functools
import hashlib
import os
import pickle
from pathlib import Path
from unittest import mock

from filelock import FileLock

import bmfjax
from bmfjax.fitting import fit

#: Examples that take more than ten CPU seconds: fits compared, merged, or of a rank that is found;
#: and, together, those of starts, of which tests see all parts.
LONG_EXAMPLES = (
    "bmfjax.comparison.fits.compare",
    "bmfjax.comparison.ranks.compare_ranks",
    "bmfjax.comparison.refits.sampling_wrapper",
    "bmfjax.families.apart.merge",
    "bmfjax.families.ratings.RatingsFit.coefficients",
    "bmfjax.infer.ascent_start.ascent_starts",
    "bmfjax.infer.boolean_start.boolean_starts",
    "bmfjax.kernels.variants.deep.deep_ormachine",
    "bmfjax.result.fit.Fit.rank_probabilities",
    "bmfjax.sklearn.BooleanMF",
)
#: Modules whose examples are long together: kernels, and models, of which tests see all parts.
LONG_MODULES = (
    "bmfjax.infer.mcmc",
    "bmfjax.kernels.boolean.gibbs",
    "bmfjax.kernels.boolean.moves",
    "bmfjax.kernels.sgmcmc",
    "bmfjax.kernels.variants",
    "bmfjax.models.deep_ormachine",
    "bmfjax.models.ormachine_effects",
)


def shared_fit(*args, **options):
    """``bmfjax.fit`` with these arguments, as it is loaded; not to be changed."""
    asked = pickle.dumps((args, sorted(options.items())))
    return _loaded(hashlib.sha256(asked).hexdigest()[:16], functools.partial(fit, *args, **options))


#: The fit with which most examples in docstrings begin.
DAVIS = {"num_chains": 2, "num_warmup": 200, "num_samples": 100, "progress": False}


def davis():
    """The fit of most examples, of rank 2."""
    return shared_fit("davis", bmfjax.OrMachine(2), **DAVIS)


_LOADED = {}


def _loaded(name, make):
    if name not in _LOADED:
        folder = Path(os.environ["BMFJAX_TEST_CACHE"]) / "fits" / name
        folder.parent.mkdir(exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not folder.exists():
                make().save(folder)
        _LOADED[name] = bmfjax.Fit.load(folder)
    return _LOADED[name]


def _shared_where_named(source, *args, **options):
    """Examples share the fits of what they name, and make those of their own data."""
    return (shared_fit if isinstance(source, str) else fit)(source, *args, **options)


def with_shared_fits(run):
    """Run an example; most of them begin with the same fit."""
    with mock.patch.object(bmfjax, "fit", _shared_where_named):
        run()
