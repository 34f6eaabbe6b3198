"""Record what another server answers to ``workbench.connect``: ``record_answers.py URL FILE``.

The server has a model ``twice`` that adds its input ``x`` (FP32, [-1, 4]) to itself. The files in
``recorded`` are of MLServer 1.7.1, KServe 0.21.0 and the Triton of nvidia-pytriton, by
benchmarks/servers; MLServer's model settings declare the input. Bytes are kept as Latin-1.
"""

import json
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from workbench.annexes.connect.connection import Connection
from workbench.errors import WorkbenchError

_KEPT = ("inference-header-content-length",)

ROWS = np.array([[1, 2, 3, 4]], np.float32)


def walk(wb: Connection) -> dict[str, Any]:
    """What *wb* gives for each step; errors by their class."""
    steps = {
        "list": lambda: wb.infer("twice", ROWS.tolist()).tolist(),
        "named": lambda: wb.infer("twice", x=ROWS).tolist(),
        "models": lambda: {model.id.name: model.state.value for model in wb.models},
        "unknown": lambda: wb.infer("nobody", x=ROWS),
        "misfit": lambda: wb.infer("twice", x=ROWS[:, :2]),
        "unload": lambda: wb.unload("twice"),
        "unloaded": lambda: wb.infer("twice", x=ROWS),
        "events": lambda: wb.events,
    }
    found: dict[str, Any] = {}
    for name, step in steps.items():
        try:
            found[name] = step()
        except WorkbenchError as error:
            found[name] = type(error).__name__
    return found


class Recorder(httpx.HTTPTransport):
    """Sends requests, and keeps them with their answers."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        answer.read()
        told = {key: answer.headers[key] for key in _KEPT if key in answer.headers}
        text, status = answer.content.decode("latin-1"), answer.status_code
        self.rows.append({**sent_by(request), "status": status, "headers": told, "answer": text})
        return httpx.Response(status, headers=told, content=answer.content)


def sent_by(request: httpx.Request) -> dict[str, Any]:
    """What is compared of a request."""
    path, body = request.url.raw_path.decode(), request.content.decode("latin-1")
    return {"method": request.method, "path": path, "body": body}


if __name__ == "__main__":
    url, file = sys.argv[1:]
    recorder = Recorder()
    for name, value in walk(Connection(url, "", 10.0, recorder)).items():
        sys.stdout.write(f"{name}: {value}\n")
    Path(file).write_text(json.dumps(recorder.rows, indent=1) + "\n")
