"""What servers of the V2 protocol tell of models and events, as values of ours."""

from typing import Any

import pytest

from workbench.annexes.connect.listing import absences, event_entries, model_status
from workbench.events import Entry, ModelEvicted, ModelLoaded, ModelLoadFailed, ToldEvent
from workbench.model import ModelId, ModelState
from workbench.residency import Absence, AbsenceKind
from workbench.statistics import FailureReason

BROKEN = Absence(AbsenceKind.FAILED, "no such file")


def test_the_status_of_a_model() -> None:
    """By the index and the statistics of its version: memory, requests and failures."""
    counted = {
        ("m", "2"): {
            "memory_usage": [{"byte_size": "3"}, {"byte_size": 4}],
            "inference_stats": {"success": {"count": "5"}, "fail": {"count": 2}},
        }
    }
    row = {"name": "m", "version": "2", "state": "ready"}
    status = model_status(row, counted, None)
    assert (status.id, status.state, status.nbytes) == (ModelId("m", 2), ModelState.READY, 7)
    assert status.requests.succeeded == 5
    assert status.requests.failures == {FailureReason.OTHER: 2}
    assert model_status({**row, "version": "1"}, counted, None).requests.failures == {}


@pytest.mark.parametrize("version", [None, "", "latest"])
def test_a_model_of_which_no_version_is_told(version: Any) -> None:
    """It has none, and no state that is not ours."""
    status = model_status({"name": "m", "version": version, "state": "ODD"}, {}, None)
    assert (status.id, status.state) == (ModelId("m", 0), ModelState.UNAVAILABLE)


@pytest.mark.parametrize(
    ("row", "absences", "absence"),
    [
        ({"reason": "no such file"}, None, BROKEN),
        ({"reason": "unloaded"}, None, None),
        ({"reason": ""}, None, None),
        ({"reason": None}, None, None),
        ({"reason": "no such file", "state": "READY"}, None, None),
        ({"reason": "evicted"}, {}, None),
        ({"reason": "no such file"}, {ModelId("m", 1): BROKEN}, BROKEN),
        ({"reason": "no such file", "version": ""}, {}, BROKEN),
    ],
)
def test_why_a_model_is_not_there(row: dict[str, Any], absences: Any, absence: Any) -> None:
    """By its reason; a workbench tells more by its events, but not of what cannot be read."""
    row = {"name": "m", "version": "1", "state": "UNAVAILABLE", **row}
    assert model_status(row, {}, absences).absence == absence


def test_how_models_left() -> None:
    """The last event of a model tells; whatever else happened to it is no eviction or failure."""
    events = [
        ModelLoadFailed(ModelId("a", 1), "broken"),
        ModelEvicted(ModelId("b", 1, 2), 5, "room"),
        ModelLoadFailed(ModelId("c", 1), "broken"),
        ModelLoaded(ModelId("c", 1), 5, 1.0),
    ]
    found = absences(Entry(n, 1.0 + n, event) for n, event in enumerate(events))
    assert found == {
        ModelId("a", 1): Absence(AbsenceKind.FAILED, "", 1.0),
        ModelId("b", 1): Absence(AbsenceKind.EVICTED, "", 2.0),
    }


def test_the_model_of_an_event() -> None:
    """With its version, if it is of a model."""
    told = {"number": 1, "at_s": 2, "kind": "load", "text": "m:3"}
    of_model = told | {"model_name": "m", "model_version": "3"}
    first, second = event_entries({"events": [of_model, told]})
    assert first == Entry(1, 2.0, ToldEvent("load", "m:3", ModelId("m", 3)))
    assert second == Entry(1, 2.0, ToldEvent("load", "m:3"))


@pytest.mark.parametrize("at_s", ["soon", None, [], 1e300, float("nan"), float("inf")])
def test_an_event_without_a_time(at_s: Any) -> None:
    """What a server tells as the time of an event is a time, or its events cannot be read."""
    with pytest.raises((ValueError, TypeError, OverflowError)):
        event_entries({"events": [{"number": 1, "at_s": at_s, "kind": "load", "text": "m:1"}]})
