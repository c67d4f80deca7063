"""What a fit is asked for by names: for tests that list what is taken or refused."""

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
