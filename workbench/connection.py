"""A server elsewhere, as a Python object: the V2 protocol over HTTP, as a client speaks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from workbench import errors
from workbench.answers import answer_of
from workbench.codecs import v2_binary, v2_json
from workbench.errors import WorkbenchError
from workbench.given import NO_INPUTS, inputs_of, tensors_of
from workbench.model import ImageForm, ModelId, Signature, TensorSpec
from workbench.tensor import Tensor
from workbench.tokens import find_token

_HEADER_SIZE = "inference-header-content-length"
_BINARY = "binary_tensor_data"  # the name of the protocol's extension
_REPOSITORY = "v2/repository/"
_ERRORS: Mapping[int, type[WorkbenchError]] = {
    400: errors.InvalidRequest,
    401: errors.TokenRequired,
    403: errors.AccessDenied,
    404: errors.ModelNotFound,
    413: errors.RequestTooLarge,
    501: errors.NotSupported,
    503: errors.ModelNotReady,
    507: errors.MemoryExhausted,
}


def connect(url: str, *, token: str | None = None, timeout_s: float = 60.0) -> Connection:
    """The server at *url*: a workbench in another process or on another machine, Triton, KServe.

    *token* is what it asks of each request; without one, that of your own workbench at *url* is
    found. *timeout_s* is how long an answer may take. Raises ``ServerNotRunning``.
    """
    return Connection(url, find_token(url) if token is None else token, timeout_s)


class Connection:
    """The models of the server at *url*. It may be used by several threads, and by ``with``.

    Where the server tells a status of HTTP, its error is of the class that a workbench would
    raise, with the message of the server.
    """

    def __init__(self, url: str, token: str, timeout_s: float) -> None:
        self.url = url if "://" in url else f"http://{url}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s)
        self._signatures: dict[tuple[str, int | None], Signature] = {}
        try:
            self._about: Mapping[str, Any] = self._ask("GET", "v2").json()
        except BaseException:
            self.close()
            raise

    def infer(
        self,
        model: str,
        inputs: object = NO_INPUTS,
        /,
        *,
        version: int | None = None,
        output: str | None = None,
        raw: bool = False,
        **by_keyword: object,
    ) -> Any:
        """As ``Workbench.infer``, over HTTP: what *model* answers to what you have."""
        request = self.request(model, inputs_of(inputs, by_keyword), version, output)
        try:
            reply = self._send(request)
        except WorkbenchError:
            self._signatures.clear()  # the model may be another by now
            raise
        return answer_of(_read(reply), raw=raw)

    def request(
        self, model: str, inputs: object, version: int | None = None, output: str | None = None
    ) -> httpx.Request:
        """The request that asks *model* for what it answers to *inputs*, not sent yet."""
        given = tensors_of(ModelId(model, version or 1), self.signature(model, version), inputs)
        head, tail = self._written(given, output)
        headers = {"Content-Type": "application/json"}
        if tail:
            headers = {"Content-Type": "application/octet-stream", _HEADER_SIZE: str(len(head))}
        path = f"{_path(model, version)}/infer"
        return self._http.build_request("POST", path, content=head + tail, headers=headers)

    async def ainfer(self, model: str, inputs: object = NO_INPUTS, /, **options: Any) -> Any:
        """As ``infer``, in a thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.infer, model, inputs, **options)

    @property
    def models(self) -> list[dict[str, str]]:
        """A row for each version of each model: ``name``, ``version``, ``state``, ``reason``.

        Raises ``NotSupported`` or ``ModelNotFound`` where the server lists no models.
        """
        rows: list[dict[str, str]] = self._ask("POST", f"{_REPOSITORY}index", json={}).json()
        return rows

    def config(self, model: str) -> dict[str, Any]:
        """The configuration of *model*, Triton's ModelConfig. Raises ``ModelNotFound``."""
        config: dict[str, Any] = self._ask("GET", f"{_path(model, None)}/config").json()
        return config

    def load(self, model: str, config: Mapping[str, Any] | None = None) -> None:
        """Load *model*, or load it anew, with *config* in place of its own until the next load.

        Raises ``LoadFailed``, ``ModelNotFound`` and others.
        """
        parameters = {} if config is None else {"config": json.dumps(config)}
        self._verb(model, "load", **parameters)

    def unload(self, model: str) -> None:
        """Unload *model*. Raises ``ModelNotFound`` and others."""
        self._verb(model, "unload")

    def close(self) -> None:
        """Close the connection; the server runs on."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"connection to {self._about.get('name', 'a server')} at {self.url}"

    def _verb(self, model: str, verb: str, **parameters: str) -> None:
        self._signatures.clear()
        body = {"parameters": parameters} if parameters else {}
        self._ask("POST", f"{_REPOSITORY}models/{quote(model, safe='')}/{verb}", json=body)

    def signature(self, model: str, version: int | None = None) -> Signature:
        """The inputs and outputs of *model*, as the server tells them. Raises ``ModelNotFound``."""
        known = self._signatures.get((model, version))
        if known is None:
            told = self._ask("GET", _path(model, version)).json()
            inputs, outputs = _specs(told["inputs"]), _specs(told["outputs"])
            # which inputs take the bytes of images, the server knows: it refuses the others
            images = {name: ImageForm("NHWC") for name in inputs}
            known = Signature(told.get("platform", ""), inputs, outputs, image_forms=images)
            self._signatures[model, version] = known
        return known

    def _written(self, tensors: Mapping[str, Tensor], output: str | None) -> tuple[bytes, bytes]:
        """A request as JSON, and the binary data after it where the server takes that."""
        binary = _BINARY in self._about.get("extensions", ())
        entries: list[dict[str, Any]] = []
        tail: list[bytes] = []
        for name, tensor in tensors.items():
            entry: dict[str, Any] = {
                "name": name,
                "shape": tensor.shape,
                "datatype": tensor.datatype,
            }
            if binary:
                tail.append(bytes(v2_binary.encode(tensor)))
                entry["parameters"] = {"binary_data_size": len(tail[-1])}
            else:
                entry["data"] = v2_json.encode(name, tensor)
            entries.append(entry)
        request: dict[str, Any] = {"inputs": entries}
        if binary:
            request["parameters"] = {"binary_data_output": True}
        if output is not None:
            request["outputs"] = [{"name": output}]
            if binary:
                request["outputs"][0]["parameters"] = {"binary_data": True}
        return v2_json.write(request), b"".join(tail)

    def _ask(self, method: str, path: str, **parts: Any) -> httpx.Response:
        return self._send(self._http.build_request(method, path, **parts))

    def _send(self, request: httpx.Request) -> httpx.Response:
        try:
            reply = self._http.send(request)
        except httpx.TimeoutException:
            raise errors.DeadlineExceeded(f"{self.url} did not answer in time") from None
        except httpx.TransportError as error:
            raise errors.ServerNotRunning(f"no server answers at {self.url}: {error}") from None
        if reply.is_success:
            return reply
        raise _ERRORS.get(reply.status_code, errors.RunFailed)(_message(reply))


def _path(model: str, version: int | None) -> str:
    path = f"v2/models/{quote(model, safe='')}"
    return path if version is None else f"{path}/versions/{version}"


def _specs(entries: list[dict[str, Any]]) -> dict[str, TensorSpec]:
    """Declared tensors, by name."""
    return {
        each["name"]: TensorSpec(each["name"], each["datatype"], tuple(map(int, each["shape"])))
        for each in entries
    }


def _read(reply: httpx.Response) -> dict[str, Tensor]:
    """The outputs of a V2 response, of JSON and the binary data after it."""
    body = memoryview(reply.content)
    size = int(reply.headers.get(_HEADER_SIZE, len(body)))
    rest, outputs = body[size:], {}
    for entry in v2_json.plain(v2_json.parse(bytes(body[:size])))["outputs"]:
        name, datatype, shape = entry["name"], entry["datatype"], tuple(map(int, entry["shape"]))
        nbytes = entry.get("parameters", {}).get("binary_data_size")
        if nbytes is None:
            outputs[name] = v2_json.decode(name, datatype, shape, entry["data"])
        else:
            outputs[name] = v2_binary.decode(name, datatype, shape, rest[:nbytes])
            rest = rest[nbytes:]
    return outputs


def _message(reply: httpx.Response) -> str:
    try:
        told = reply.json()["error"]
    except (ValueError, KeyError, TypeError):
        told = reply.text[:200]
    return str(told) or f"the server answered {reply.status_code}"
