"""Factorise binary matrices on JAX and NumPyro, with uncertainty.

Names are loaded where they are first used: JAX and what stands on it take seconds to import.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bmfjax import models
    from bmfjax.comparison import compare, compare_ranks, sampling_wrapper
    from bmfjax.data import (
        BinaryMatrix,
        Ratings,
        RealMatrix,
        datasets,
        generate_product,
        generate_tiles,
        load,
        load_ratings,
        save,
    )
    from bmfjax.errors import InputError
    from bmfjax.fitting import Fit, fit, merge
    from bmfjax.infer import (
        IASG,
        SGHMC,
        SGLD,
        AuxiliaryGibbs,
        NMFGibbs,
        OrMachineGibbs,
        OrMachineSMC,
        PMFGibbs,
        TruncatedGibbs,
    )
    from bmfjax.infer.mcmc.to_arviz import to_arviz
    from bmfjax.kernels.numerics.compiling import use_compilation_cache
    from bmfjax.posterior.pointwise import log_likelihood_fn
    from bmfjax.specs import (
        NMF,
        PMF,
        SMC,
        SVI,
        Batch,
        DeepOrMachine,
        Features,
        Gibbs,
        Hamming,
        IterateAveraging,
        Logistic,
        Minibatch,
        OneHot,
        OrderedProbit,
        OrMachine,
        OrMachineEffects,
        Poisson,
        Probit,
        Relaxed,
        ThesisAveraging,
    )

    __version__: str

__all__ = [
    "IASG",
    "NMF",
    "PMF",
    "SGHMC",
    "SGLD",
    "SMC",
    "SVI",
    "AuxiliaryGibbs",
    "Batch",
    "BinaryMatrix",
    "DeepOrMachine",
    "Features",
    "Fit",
    "Gibbs",
    "Hamming",
    "InputError",
    "IterateAveraging",
    "Logistic",
    "Minibatch",
    "NMFGibbs",
    "OneHot",
    "OrMachine",
    "OrMachineEffects",
    "OrMachineGibbs",
    "OrMachineSMC",
    "OrderedProbit",
    "PMFGibbs",
    "Poisson",
    "Probit",
    "Ratings",
    "RealMatrix",
    "Relaxed",
    "ThesisAveraging",
    "TruncatedGibbs",
    "compare",
    "compare_ranks",
    "datasets",
    "fit",
    "generate_product",
    "generate_tiles",
    "load",
    "load_ratings",
    "log_likelihood_fn",
    "merge",
    "models",
    "sampling_wrapper",
    "save",
    "to_arviz",
    "use_compilation_cache",
]

#: Where public names come from that are no models or samplers.
_HOMES = {
    "bmfjax.comparison": ("compare", "compare_ranks", "sampling_wrapper"),
    "bmfjax.data": (
        "BinaryMatrix", "Ratings", "RealMatrix", "datasets", "generate_product", "generate_tiles",
        "load", "load_ratings", "save",
    ),
    "bmfjax.errors": ("InputError",),
    # With the families, by whose names `Fit.load` finds its classes.
    "bmfjax.fitting": ("Fit", "fit", "merge"),
    "bmfjax.infer": (
        "IASG", "SGHMC", "SGLD", "AuxiliaryGibbs", "NMFGibbs", "OrMachineGibbs", "OrMachineSMC",
        "PMFGibbs", "TruncatedGibbs",
    ),
    "bmfjax.infer.mcmc.to_arviz": ("to_arviz",),
    "bmfjax.kernels.numerics.compiling": ("use_compilation_cache",),
    "bmfjax.posterior.pointwise": ("log_likelihood_fn",),
}  # fmt: skip
_PACKAGES = {
    "data",
    "diagnostics",
    "families",
    "infer",
    "kernels",
    "models",
    "optimize",
    "variational",
}
_HOME = {name: "bmfjax.specs" for name in __all__ if name not in _PACKAGES}
_HOME |= {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str):
    """Load a public name, or one of the packages with names for users, where it is first used."""
    if name == "__version__":
        return importlib.import_module("bmfjax.errors").version_of("bmfjax")
    if name in _PACKAGES:
        return importlib.import_module(f"bmfjax.{name}")
    if name not in _HOME:
        hint = ""
        if not name.startswith("_"):
            hint = importlib.import_module("bmfjax.errors").did_you_mean(name, __all__)
        raise AttributeError(f"module 'bmfjax' has no attribute {name!r}{hint}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES, "__version__"})
