"""The requests that are sent, to the byte: as clients make them, and as one may write them by hand.

Those of a case differ: in their numbers always, in their ids where they have some.
"""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import orjson

HERE = Path(__file__).parent
CLIENTS = HERE.parent / ".venv-clients" / "bin" / "python"
LENGTH = re.compile(rb"^content-length: *([0-9]+)", re.IGNORECASE | re.MULTILINE)
ID = re.compile(rb'"id": ?"([^"]*)"')
ENOUGH = b'{"model_name":"m","model_version":"1","outputs":[]}'

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = Mapping[str, Array]  # inputs by name, FP32


@dataclass(frozen=True)
class Asked:
    """What one request asks of a model; *outputs* are the chosen ones, none for all."""

    model: str
    inputs: Arrays
    outputs: tuple[str, ...] = ()


Body = Callable[[list[Asked]], list[bytes]]  # whole requests, their heads included


class NotSent(Exception):
    """A client that is not installed, or does not send."""


# ── by hand ──


def plain_json(asked: list[Asked]) -> list[bytes]:
    """One request each: flat JSON, nothing but inputs, its numbers as short as FP32 allows."""
    return [_json(each, orjson.dumps(_message(each), option=orjson.OPT_SERIALIZE_NUMPY))
            for each in asked]  # fmt: skip


def json_with_id(asked: list[Asked]) -> list[bytes]:
    """As ``plain_json``, each with an id of its own."""
    messages = [{"id": id_, **_message(each)} for id_, each in zip(_ids(), asked, strict=False)]
    return [
        _json(each, orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY))
        for each, message in zip(asked, messages, strict=True)
    ]


def json_by_hand(asked: list[Asked]) -> list[bytes]:
    """Nested JSON with spaces, the keys in another order, an id of its own, and parameters."""
    requests = []
    for id_, each in zip(_ids(), asked, strict=False):
        inputs = [
            {"data": _short(array), "datatype": "FP32", "shape": array.shape, "name": name}
            for name, array in each.inputs.items()
        ]
        message = {"parameters": {"priority": 1, "dry": False}, "inputs": inputs, "id": id_}
        if each.outputs:
            message["outputs"] = [{"name": name} for name in each.outputs]
        requests.append(_json(each, json.dumps(message).encode()))
    return requests


def binary(asked: list[Asked]) -> list[bytes]:
    """Binary tensors both ways, as tritonclient's, but by hand: it is slow with large ones."""
    requests = []
    for each in asked:
        inputs = [
            _entry(name, array) | {"parameters": {"binary_data_size": array.nbytes}}
            for name, array in each.inputs.items()
        ]
        head = orjson.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}})
        body = b"".join([head, *(array.tobytes() for array in each.inputs.values())])
        line = b"Inference-Header-Content-Length: %d" % len(head)
        requests.append(_post(each, b"application/octet-stream", body, line))
    return requests


def _message(asked: Asked) -> dict[str, Any]:
    inputs = [_entry(name, array) | {"data": array.ravel()} for name, array in asked.inputs.items()]
    return {"inputs": inputs}


def _entry(name: str, array: Array) -> dict[str, Any]:
    return {"name": name, "shape": array.shape, "datatype": "FP32"}


def _short(array: Array) -> Any:
    return orjson.loads(orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY))


def _ids() -> Any:
    """Ids as KServe's client makes them, always the same ones."""
    numbers = random.Random(1)
    while True:
        yield str(UUID(int=numbers.getrandbits(128), version=4))


def _json(asked: Asked, body: bytes) -> bytes:
    return _post(asked, b"application/json", body)


def _post(asked: Asked, content_type: bytes, body: bytes, *lines: bytes) -> bytes:
    head = [
        b"POST /v2/models/%b/infer HTTP/1.1" % asked.model.encode(),
        b"Host: 127.0.0.1",
        b"Content-Type: " + content_type,
        *lines,
        b"Content-Length: %d" % len(body),
    ]
    return b"\r\n".join([*head, b"", body])


# ── by clients ──


def tritonclient(asked: list[Asked]) -> list[bytes]:
    """What tritonclient's HTTP client sends by default: binary tensors both ways."""
    return _sent_by(Path(sys.executable), "send_tritonclient.py", asked)


def kserve(asked: list[Asked]) -> list[bytes]:
    """What KServe's client sends: JSON, each with an id of its own; it takes gzip."""
    if not CLIENTS.exists():
        raise NotSent("there is no .venv-clients: make clients makes it")
    return _sent_by(CLIENTS, "send_kserve.py", asked)


def _sent_by(python: Path, script: str, asked: list[Asked]) -> list[bytes]:
    """What the script of ``clients/`` sends. Raises ``NotSent``."""
    arrays = {name: np.stack([each.inputs[name] for each in asked]) for name in asked[0].inputs}
    with tempfile.TemporaryDirectory() as work, socket.create_server(("127.0.0.1", 0)) as listening:
        path = Path(work) / "arrays.npz"
        np.savez(path, allow_pickle=False, **arrays)
        port = str(listening.getsockname()[1])
        words = [python, HERE / "clients" / script, port, asked[0].model, path, *asked[0].outputs]
        listening.settimeout(60)
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as file:
                return [_received(connection, file) for _ in asked]
        except OSError as error:
            raise NotSent(f"{script}: {error}") from error
        finally:
            process.kill()
            process.wait()


def _received(connection: socket.socket, file: Any) -> bytes:
    """The next request, which is answered with no outputs."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = file.readline()
        if not line:
            raise ConnectionError("the client hung up")
        head += line
    length = LENGTH.search(head)
    assert length is not None
    body = file.read(int(length[1]))
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    connection.sendall(answer % (len(ENOUGH), ENOUGH))
    return head + body
