"""What the page says of replicas at several temperatures."""

from types import SimpleNamespace

import numpy as np

from bmfjax.report import facts
from bmfjax.verdict import Figures


def test_round_trips_after_the_warmup_beside_those_expected():
    """Two replicas that change places in every other step: as fast as can be."""
    swap = np.tile([[1.0], [np.nan]], (20, 1))
    replica = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    trace = {"swap_probability": swap[None], "replica": np.tile(replica, (10, 1))[None]}
    fit = SimpleNamespace(trace=trace, figures=Figures(num_warmup=20))
    (fact,) = facts.replicas(fit)
    assert (fact.name, fact.value) == ("Replicas", "2")
    assert "at least 1.00; 8 round trips, where these rates allow about 10;" in fact.note
    assert fact.note.endswith("recommended number: 1")
    assert not list(facts.replicas(SimpleNamespace(trace={})))
