"""The least that a server in Python can be: ``python serve_bare.py MODELS PORT``.

uvicorn's connection, httptools, simdjson, ONNX Runtime, orjson, and nothing else: no checks, no
other paths, no leases, no statistics. It reads each request whole, JSON and binary.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import orjson
import simdjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MODEL = re.compile(rb"/v2/models/(.+)/infer")
INVOKE = re.compile(rb"/models/(.+)/invoke")
HEAD = b"HTTP/1.1 200 OK\r\ndate: %b\r\nserver: uvicorn\r\ncontent-type: application/json\r\n"
NAME = b'{"name":"bare","version":"1"}'


class Bare(HttpToolsProtocol):
    """Answers inferences of *sessions*, and anything else with its name."""

    def __init__(self, *args: Any, sessions: Mapping[bytes, Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sessions = sessions
        self.options = onnxruntime.RunOptions()
        self.json = simdjson.Parser()

    def on_message_begin(self) -> None:
        """Begin."""
        self.url, self.headers, self.chunks = b"", [], []

    def on_headers_complete(self) -> None:
        """Nothing is checked."""

    def on_body(self, body: bytes) -> None:
        """Keep it."""
        self.chunks.append(body)

    def on_message_complete(self) -> None:
        """Answer."""
        self.server_state.total_requests += 1
        path = MODEL.fullmatch(self.url)
        invoke = INVOKE.fullmatch(self.url)
        date = self.server_state.default_headers[0][1]
        if invoke is not None:
            text = self.invoke(invoke[1].decode(), b"".join(self.chunks))
            self.transport.write(HEAD % date + b"content-length: %d\r\n\r\n%b" % (len(text), text))
            return
        if path is None:
            self.transport.write(HEAD % date + b"content-length: %d\r\n\r\n%b" % (len(NAME), NAME))
            return
        head, *blobs = self.answer(path[1].decode(), b"".join(self.chunks))
        lines = [HEAD % date]
        if blobs:
            lines.append(b"inference-header-content-length: %d\r\n" % len(head))
        lines.append(b"content-length: %d\r\n\r\n" % sum(map(len, (head, *blobs))))
        self.transport.write(b"".join([*lines, head, *blobs]))

    def answer(self, model: str, body: bytes) -> list[bytes]:
        """The parts of the answer to *body*."""
        n_json = next((int(v) for k, v in self.headers if k.startswith(b"inference")), len(body))
        message = members(self.json.parse(body[:n_json]))
        feed, wants_binary = {}, self._wants_binary(message)
        for each in message["inputs"]:
            entry = members(each)
            if "data" in entry:
                array = np.frombuffer(entry["data"].as_buffer(of_type="d")).astype(np.float32)
            else:
                n_array = entry["parameters"]["binary_data_size"]
                array = np.frombuffer(body, np.float32, n_array // 4, n_json)
                n_json += n_array
            feed[entry["name"]] = array.reshape(tuple(entry["shape"]))
        session, names = self.sessions[model]
        if "outputs" in message:
            names = [output["name"] for output in message["outputs"]]
        outputs, blobs = [], []
        for name, array in zip(names, session.run(names, feed, self.options), strict=True):
            output = {"name": name, "datatype": "FP32", "shape": array.shape}
            if wants_binary:
                blobs.append(array.tobytes())
                output["parameters"] = {"binary_data_size": array.nbytes}
            else:
                output["data"] = array.ravel()
            outputs.append(output)
        reply = {"model_name": model, "model_version": "1", "outputs": outputs}
        if "id" in message:
            reply["id"] = message["id"]
        return [orjson.dumps(reply, option=orjson.OPT_SERIALIZE_NUMPY), *blobs]

    def invoke(self, model: str, body: bytes) -> bytes:
        """The answer to rows of a model of one input, "x", as SageMaker's clients send them."""
        rows = np.array(orjson.loads(body), np.float32)
        session, names = self.sessions[model]
        (answer,) = session.run(names, {"x": rows}, self.options)
        return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)

    def _wants_binary(self, message: Any) -> bool:
        if "outputs" in message:
            return any("parameters" in list(output) for output in message["outputs"])
        return "binary_data_output" in list(message.get("parameters", ()))


def members(value: Any) -> dict[str, Any]:
    """Of a parsed object, which throws in C++ when it is asked for what is not there."""
    return {key: value[key] for key in value}


def open_models(folder: Path) -> dict[str, tuple[Any, list[str]]]:
    """The engine's sessions and the names of their outputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = {}
    for path in folder.glob("*/model.onnx"):
        session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        sessions[path.parent.name] = session._sess, [o.name for o in session.get_outputs()]  # noqa: SLF001
    return sessions


async def app(*_: object) -> None:
    """Is never asked."""


def main(folder: str, port: str) -> None:
    """Serve until killed."""
    protocol = partial(Bare, sessions=open_models(Path(folder)))
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", int(port)))  # with this protocol asyncio turns Nagle's off
    config = uvicorn.Config(app, http=protocol, lifespan="off", log_config=None, ws="none")  # type: ignore[arg-type]
    uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
