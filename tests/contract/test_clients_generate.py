"""``generate`` and ``generate_stream``, as people call them with requests and curl."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import requests

from workbench import Workbench


@pytest.fixture(scope="module")
def chatty() -> Iterator[Workbench]:
    """A server of a model that answers text with text."""
    workbench = Workbench()

    @workbench.model(
        inputs={"text_input": ("BYTES", [-1])}, outputs={"text_output": ("BYTES", [-1])}
    )
    def shout(text_input: Any) -> Any:
        return np.array([each.upper() for each in text_input], object)

    with workbench:
        yield workbench


@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_generate(chatty: Workbench, version: str) -> None:
    """Flat JSON in, flat JSON out; an output of one element comes without a list."""
    url = f"{chatty.url}/v2/models/shout{version}/generate"
    body = {"text_input": "hello", "parameters": {"stream": False, "temperature": 0}}
    response = requests.post(url, json=body, timeout=200)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert (answer["model_name"], answer["model_version"]) == ("shout", "1")
    assert answer["text_output"] == "HELLO"


def test_generate_stream(chatty: Workbench) -> None:
    """The stream is one server-sent event with the same JSON."""
    url = f"{chatty.url}/v2/models/shout/generate_stream"
    with requests.post(url, json={"text_input": "hello"}, stream=True, timeout=200) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line.decode() for line in response.iter_lines() if line]
    (event,) = lines
    assert event.startswith("data: ")
    assert json.loads(event.removeprefix("data: "))["text_output"] == "HELLO"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_generates(chatty: Workbench) -> None:
    """``curl -d`` and ``curl -N -d``, as documentation has them."""
    for verb, start in (("generate", b"{"), ("generate_stream", b"data: {")):
        url = f"{chatty.url}/v2/models/shout/{verb}"
        command = ["curl", "-s", "-N", "-d", '{"text_input": "hello"}', url]
        done = subprocess.run(command, capture_output=True, check=True, timeout=200)
        assert done.stdout.startswith(start)
        assert b"HELLO" in done.stdout
