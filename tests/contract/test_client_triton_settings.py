"""Tritonclient's trace and log settings against a live server."""

from __future__ import annotations

from typing import Any

import pytest
from tritonclient.utils import InferenceServerException

TRACE = {
    "trace_level", "trace_rate", "trace_count", "log_frequency", "trace_file", "trace_mode",
}  # fmt: skip
LOGGING = {
    "log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format",
}  # fmt: skip


@pytest.mark.parametrize("model", ["", "digits"])
def test_triton_trace_settings(triton: Any, model: str) -> None:
    """They can be read, of the server and of a model: numbers as strings, as Triton has them."""
    settings = triton.get_trace_settings(model)
    assert set(settings) >= TRACE
    assert settings["trace_level"] == ["OFF"]
    assert settings["trace_rate"] == "1000"
    assert settings["trace_count"] == "-1"


def test_triton_trace_settings_of_nobody(triton: Any) -> None:
    """The trace settings of a model that there is not are an error that names it."""
    with pytest.raises(InferenceServerException, match="nobody"):
        triton.get_trace_settings("nobody")


def test_triton_traces_no_tensors(triton: Any) -> None:
    """Asked to trace tensors, the server says that it does not: 501, and nothing changes."""
    with pytest.raises(InferenceServerException) as caught:
        triton.update_trace_settings(settings={"trace_level": ["TENSORS"]})
    assert caught.value.status() == "501"
    assert triton.get_trace_settings()["trace_level"] == ["OFF"]


def test_triton_log_settings(triton: Any) -> None:
    """They can be read, and what means something here can be written and is told back."""
    settings = triton.get_log_settings()
    assert set(settings) >= LOGGING
    changed = triton.update_log_settings(settings={"log_verbose_level": 1})
    assert changed["log_verbose_level"] == 1
    assert triton.get_log_settings()["log_verbose_level"] == 1
    back = {"log_verbose_level": settings["log_verbose_level"]}
    assert triton.update_log_settings(settings=back) == settings


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"log_file": "x.log"}, "501"),
        ({"log_verbose_level": "much"}, "400"),
        ({"log_info": 3}, "400"),
        ({"log_nothing": True}, "400"),
    ],
)
def test_triton_wrong_log_settings(triton: Any, settings: dict[str, Any], status: str) -> None:
    """What cannot be is refused and named, and nothing changes."""
    before = triton.get_log_settings()
    with pytest.raises(InferenceServerException, match=next(iter(settings))) as caught:
        triton.update_log_settings(settings=settings)
    assert caught.value.status() == status
    assert triton.get_log_settings() == before
