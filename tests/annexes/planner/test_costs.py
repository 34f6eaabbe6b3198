"""The costs of models, by the log of a server."""

from workbench.annexes.planner.costs import ModelCost, measured
from workbench.events import EventLog, ModelLoaded, ModelLoadFailed, ModelLoading, ModelPrepared
from workbench.model import ModelId

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
