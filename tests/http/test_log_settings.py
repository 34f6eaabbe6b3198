"""Triton's logging extension over HTTP, one test a rule, against live servers."""

import gzip
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tritonclient.http import InferenceServerClient

from workbench import Workbench

DEFAULTS = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}
_log = logging.getLogger("workbench")


@pytest.fixture
def workbench() -> Iterator[Workbench]:
    with Workbench(device="cpu") as workbench:
        yield workbench


@pytest.fixture
def triton(workbench: Workbench) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(workbench.url.removeprefix("http://")) as client:
        yield client


@pytest.fixture
def chatty() -> Iterator[None]:
    """The server's logger, as who wants to hear everything sets it."""
    level = _log.level
    _log.setLevel(logging.DEBUG)
    yield
    _log.setLevel(level)


def speak() -> None:
    _log.debug("a detail")
    _log.info("an information")
    _log.warning("a warning")
    _log.error("an error")


def kept(workbench: Workbench) -> list[str]:
    return [line.partition(": ")[2] for line in workbench.logs.splitlines()]


def post(workbench: Workbench, body: Any) -> httpx.Response:
    return httpx.post(f"{workbench.url}/v2/logging", json=body)


def test_log_settings_at_first(triton: InferenceServerClient) -> None:
    """Tritonclient reads the settings by Triton's names, in its order."""
    assert list(triton.get_log_settings().items()) == list(DEFAULTS.items())


@pytest.mark.usefixtures("chatty")
@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, ["an information", "a warning", "an error"]),
        ({"log_info": False}, ["a warning", "an error"]),
        ({"log_warning": False}, ["an information", "an error"]),
        ({"log_error": False}, ["an information", "a warning"]),
        ({"log_verbose_level": 1}, ["a detail", "an information", "a warning", "an error"]),
        ({"log_info": False, "log_warning": False, "log_error": False}, []),
    ],
)
def test_what_is_kept(
    workbench: Workbench, triton: InferenceServerClient, changes: dict[str, Any], lines: list[str]
) -> None:
    """The settings say which records the server keeps; those not given stay."""
    assert triton.update_log_settings(changes) == {**DEFAULTS, **changes}
    assert triton.get_log_settings() == {**DEFAULTS, **changes}
    speak()
    assert kept(workbench) == lines


def test_settings_change_one_by_one(triton: InferenceServerClient) -> None:
    """A later change keeps the earlier ones; null and an empty log file change nothing."""
    triton.update_log_settings({"log_info": False})
    told = triton.update_log_settings({"log_verbose_level": 2, "log_info": None, "log_file": ""})
    assert told == {**DEFAULTS, "log_info": False, "log_verbose_level": 2}


@pytest.mark.parametrize("content", [b"", b"{}"])
def test_empty_changes(workbench: Workbench, content: bytes) -> None:
    """An empty body, or object, changes nothing."""
    assert httpx.post(f"{workbench.url}/v2/logging", content=content).json() == DEFAULTS


def test_format_of_times(workbench: Workbench, triton: InferenceServerClient) -> None:
    """ISO8601 writes the times in UTC as that standard does, default as Python does."""
    for name in ("ISO8601", "default"):
        assert triton.update_log_settings({"log_format": name})["log_format"] == name
        record = logging.LogRecord("workbench", logging.ERROR, "", 0, "now", None, None)
        record.created, record.msecs = 0.0, 0.0
        _log.handle(record)
    iso, default = workbench.logs.splitlines()
    assert iso == "1970-01-01T00:00:00Z ERROR workbench: now"
    assert default.endswith(",000 ERROR workbench: now")


def test_settings_are_a_servers_own(workbench: Workbench) -> None:
    """Another server in the same process keeps what it kept."""
    with Workbench(device="cpu") as other:
        post(workbench, {"log_error": False})
        _log.error("an error")
        assert (kept(workbench), kept(other)) == ([], ["an error"])


def test_settings_survive_a_restart(workbench: Workbench) -> None:
    """A restart keeps the settings."""
    post(workbench, {"log_error": False})
    workbench.restart()
    assert httpx.get(f"{workbench.url}/v2/logging").json() == {**DEFAULTS, "log_error": False}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"log_file": "x.log"}, 501, "the log is kept in memory: 'log_file' cannot be set"),
        ({"log_file": 7}, 400, "'log_file' must be a string, not 7"),
        ({"log_info": 1}, 400, "'log_info' must be true or false, not 1"),
        ({"log_warning": "true"}, 400, "'log_warning' must be true or false, not \"true\""),
        ({"log_error": []}, 400, "'log_error' must be true or false, not an array"),
        ({"log_verbose_level": -1}, 400, "'log_verbose_level' must be a whole number"),
        ({"log_verbose_level": True}, 400, "'log_verbose_level' must be a whole number"),
        ({"log_verbose_level": 1.5}, 400, "'log_verbose_level' must be a whole number"),
        ({"log_verbose_level": 2**32}, 400, "'log_verbose_level' must be a whole number"),
        ({"log_format": "xml"}, 400, '\'log_format\' must be "default" or "ISO8601", not'),
        ({"log_format": {}}, 400, '\'log_format\' must be "default" or "ISO8601", not'),
        ({"log_warnings": True}, 400, "there is no log setting 'log_warnings'; available: log_"),
        ([], 400, "the body is not a JSON object"),
    ],
)
def test_bad_log_settings(workbench: Workbench, body: Any, status: int, message: str) -> None:
    """What is unknown, of a wrong type or not to be had is named, and nothing is changed."""
    if isinstance(body, dict):
        body = {"log_info": False, **body}
    response = post(workbench, body)
    assert response.status_code == status
    assert response.json()["error"].startswith(message)
    assert httpx.get(f"{workbench.url}/v2/logging").json() == DEFAULTS


def test_log_settings_methods(workbench: Workbench) -> None:
    """The settings are read and posted, no more."""
    response = httpx.put(f"{workbench.url}/v2/logging")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, POST, HEAD")


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_a_body_that_is_too_large(workbench: Workbench, coding: str) -> None:
    """The 413 names the limit of such bodies, which is not the setting max_request."""
    content = b" " * (2**14 + 1)
    response = httpx.post(
        f"{workbench.url}/v2/logging",
        content=gzip.compress(content) if coding == "gzip" else content,
        headers={"Content-Encoding": coding},
    )
    assert response.status_code == 413
    assert response.json()["error"].endswith(" (16.0 KiB, the most that this path takes)")


def test_a_member_that_is_there_twice(workbench: Workbench) -> None:
    """The first one counts, as in requests to models."""
    content = b'{"log_verbose_level": 1, "log_verbose_level": 2}'
    assert (
        httpx.post(f"{workbench.url}/v2/logging", content=content).json()["log_verbose_level"] == 1
    )
