"""Tritonclient's trace and log settings against a live server."""

from __future__ import annotations

from typing import Any

import pytest

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


def test_triton_log_settings(triton: Any) -> None:
    """They can be read, and what means something here can be written and is told back."""
    settings = triton.get_log_settings()
    assert set(settings) >= LOGGING
    changed = triton.update_log_settings(settings={"log_verbose_level": 1})
    assert changed["log_verbose_level"] == 1
    assert triton.get_log_settings()["log_verbose_level"] == 1
    back = {"log_verbose_level": settings["log_verbose_level"]}
    assert triton.update_log_settings(settings=back) == settings
