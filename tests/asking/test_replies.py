"""What servers of the V2 protocol reply, as values of ours."""

import json
from typing import Any

import httpx
import numpy as np
import pytest

from workbench import errors
from workbench.asking.replies import (
    HEADER_SIZE,
    checked,
    event_entries,
    model_status,
    read_outputs,
    tensor_specs,
)
from workbench.events import Entry, ToldEvent
from workbench.model import ModelId, ModelState
from workbench.residency import Absence, AbsenceKind
from workbench.statistics import FailureReason

BROKEN = Absence(AbsenceKind.FAILED, "no such file")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, errors.InvalidRequest), (401, errors.TokenRequired), (403, errors.AccessDenied),
        (404, errors.ModelNotFound), (413, errors.RequestTooLarge), (501, errors.NotSupported),
        (503, errors.ModelNotReady), (507, errors.MemoryExhausted), (500, errors.RunFailed),
        (418, errors.RunFailed),
    ],
)  # fmt: skip
def test_the_error_of_a_status(status: int, error: type[Exception]) -> None:
    """It is the one that a workbench answers with that status; of any other, a failed run."""
    with pytest.raises(error, match=r"^told$") as caught:
        checked(httpx.Response(status, json={"error": "told"}))
    assert type(caught.value) is error


def test_a_long_page_is_cut() -> None:
    """What a proxy says is told, up to 200 characters."""
    with pytest.raises(errors.RunFailed, match=r"^a{200}$"):
        checked(httpx.Response(502, text="a" * 300))


def test_what_is_said_twice_is_told_once() -> None:
    """What a workbench sends before its sentence, which says the same; Triton's stays."""
    triton = "Request for unknown model: 'm' is not found"
    for told, left in (
        ("Request for unknown model: there is no model 'm'", "there is no model 'm'"),
        ("failed to load 'm': there is no model 'm'", "there is no model 'm'"),
        (triton,) * 2,
    ):
        with pytest.raises(errors.ModelNotFound) as caught:
            checked(httpx.Response(404, json={"error": told}))
        assert str(caught.value).strip() == left


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


def test_the_model_of_an_event() -> None:
    """With its version, if it is of a model."""
    told = {"number": 1, "at_s": 2, "kind": "load", "text": "m:3"}
    of_model = told | {"model_name": "m", "model_version": "3"}
    first, second = event_entries({"events": [of_model, told]})
    assert first == Entry(1, 2.0, ToldEvent("load", "m:3", ModelId("m", 3)))
    assert second == Entry(1, 2.0, ToldEvent("load", "m:3"))


def test_tensors_that_are_not_declared() -> None:
    """Some servers tell none, or null."""
    assert tensor_specs(None) == {}
    (spec,) = tensor_specs([{"name": "x", "datatype": "FP32", "shape": ["-1", 2]}]).values()
    assert spec.shape == (-1, 2)


def test_outputs_in_json_and_in_binary() -> None:
    """Each binary one has its bytes, one after the other; one of no bytes is one, too."""
    head = {
        "outputs": [
            {"name": name, "datatype": "INT32", "shape": [len(data)], **(
                {"data": data} if name == "plain"
                else {"parameters": {"binary_data_size": 4 * len(data)}}
            )}
            for name, data in (("a", [1, 2]), ("plain", [3]), ("none", []), ("b", [4]))
        ]
    }  # fmt: skip
    text = json.dumps(head).encode()
    tail = np.array([1, 2, 4], np.int32).tobytes()
    reply = httpx.Response(200, content=text + tail, headers={HEADER_SIZE: str(len(text))})
    outputs = {name: tensor.array.tolist() for name, tensor in read_outputs(reply).items()}
    assert outputs == {"a": [1, 2], "plain": [3], "none": [], "b": [4]}
