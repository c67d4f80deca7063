"""What a fit is asked for by names, and what it says of itself when it is read again."""

import numpy as np
import pandas as pd

from bmfjax.specs import MODELS, model_of, sampler_of


def said(model="ormachine", sampler=None, priors=None, options=None, **more):
    """Return arguments of `bmfjax.fit`: a model with some parameters, a sampler with options."""
    if priors is not None:
        more["model"] = model_of(model, **priors)
    else:
        more["model"] = model
    if options is not None:
        kind = MODELS[model]
        sampler = sampler_of(sampler or next(iter(kind.samplers)).name, kind, **options)
    return more | ({} if sampler is None else {"sampler": sampler})


def has_its_summary(again, fit) -> bool:
    """Check the table of a fit that was stored: the same to the last bit, the largest first."""
    pd.testing.assert_frame_equal(again.summary(), fit.summary(), check_exact=True)
    return "size" not in again.summary() or bool((np.diff(again.summary()["size"]) <= 0).all())
