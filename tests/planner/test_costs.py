"""The costs of models, by the log of a server."""

import math

import pytest

from workbench.errors import UsageError
from workbench.events import EventLog, ModelLoaded, ModelLoadFailed, ModelLoading, ModelPrepared
from workbench.model import ModelId
from workbench.planner import ModelCost, measured
from workbench.planner.costs import check_costs

A, B, C = (ModelId(name, 1) for name in "abc")


def test_measured() -> None:
    """What a model takes is read off a server's log: claim, size, and the median of its loads."""
    log = EventLog()
    for model, seconds in ((A, 1.0), (A, 9.0), (B, 0.5), (A, 2.0)):
        log.append(ModelLoading(model, 50))
        log.append(ModelLoaded(model, 40, seconds))
    log.append(ModelLoading(C, 50))
    log.append(ModelLoadFailed(C, "broken"))
    assert measured(log.since()) == {A: ModelCost(40, 2.0, 50), B: ModelCost(40, 0.5, 50)}


def test_prepared() -> None:
    """Once a model was prepared only its fast loads count."""
    log = EventLog()
    for event in (
        ModelLoaded(A, 40, 1.0),
        ModelLoaded(B, 40, 3.0),
        ModelPrepared(A, 10, 0.1),
        ModelLoaded(A, 40, 0.25),
    ):
        log.append(event)
    assert measured(log.since()) == {A: ModelCost(40, 0.25, 40), B: ModelCost(40, 3.0, 40)}


def test_the_editions_of_a_model_are_one() -> None:
    """What a load of another edition claims and takes is the model's."""
    log = EventLog()
    edition = A._replace(edition=2)
    for event in (ModelLoading(edition, 50), ModelLoaded(edition, 40, 1.0)):
        log.append(event)
    assert measured(log.since()) == {A: ModelCost(40, 1.0, 50)}


@pytest.mark.parametrize(
    "cost",
    [
        ModelCost(-1, 1.0),
        ModelCost(1, math.inf),
        ModelCost(1, math.nan),
        ModelCost(1, 1.0, run_s=-1.0),
        ModelCost(1, 1.0, unload_s=-1.0),
        ModelCost(1, 1.0, claim_nbytes=-1),
    ],
)
def test_what_is_no_cost(cost: ModelCost) -> None:
    """Its numbers are neither negative nor infinite."""
    with pytest.raises(UsageError, match="the cost of a:1 is not of numbers from 0 up"):
        check_costs({A: cost}, [A])
