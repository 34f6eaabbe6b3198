"""A server of the V2 protocol that is measured, and asked no more than that takes."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from http.client import HTTPException, HTTPResponse
from typing import Any, TypeVar
from urllib.parse import urlsplit

from workbench.client import elsewhere
from workbench.errors import DeadlineExceeded, ServerNotRunning
from workbench.model import ModelId, Signature
from workbench.running import find_token
from workbench.tensor import Tensor

T = TypeVar("T")

_TIMEOUT_S = 60.0


class BenchServer:
    """The server at *url*, which asks for *token*; ``None``: that of your own server there."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = elsewhere.address_of(url)
        parts = urlsplit(self.url)
        self.tls = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if self.tls else 80)
        self._path = parts.path
        self._headers = {"host": parts.netloc, "accept": "*/*"}
        if token := find_token(self.url) if token is None else token:
            self._headers["authorization"] = f"Bearer {token}"

    def signature(self, model: str) -> Signature:
        """The inputs and outputs of *model*, as far as the server tells them."""
        path = elsewhere.path_of_model(model)
        return self._told(path, partial(elsewhere.signature_of, ModelId(model, 1)))

    def request(self, model: str, tensors: Mapping[str, Tensor]) -> bytes:
        """The whole request for the answer of *model* to *tensors*."""
        body, headers = elsewhere.write_request(tensors, binary=self._takes_binary)
        return self._request("POST", f"{elsewhere.path_of_model(model)}/infer", body, headers)

    @cached_property
    def _takes_binary(self) -> bool:
        return self._told("v2", lambda told: elsewhere.BINARY in (told.get("extensions") or ()))

    def _told(self, path: str, read: Callable[[Any], T]) -> T:
        """The JSON at *path* of the server, as *read* returns it."""
        body = self.ask(self._request("GET", path))
        with elsewhere.reading(f"GET {self.url}/{path}", body):
            return read(json.loads(body))

    def _request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = {}
    ) -> bytes:
        lines = [f"{method} {self._path}/{path} HTTP/1.1"]
        told = {**self._headers, **headers, "content-length": str(len(body))}
        lines += [f"{name}: {value}" for name, value in told.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def ask(self, request: bytes) -> bytes:
        """The answer to a whole *request*.

        Raises ``ServerNotRunning``, ``DeadlineExceeded``, and the error that the server tells.
        """
        try:
            with socket.create_connection((self.host, self.port), _TIMEOUT_S) as plain:
                context = ssl.create_default_context() if self.tls else None
                stream = context.wrap_socket(plain, server_hostname=self.host) if context else plain
                with stream, HTTPResponse(stream) as reply:
                    stream.sendall(request)
                    reply.begin()
                    body = reply.read()
        except TimeoutError:
            raise DeadlineExceeded(f"{self.url} did not answer in time") from None
        except (OSError, HTTPException) as error:
            why = getattr(error, "strerror", None) or error
            raise ServerNotRunning(f"no server answers at {self.url}: {why}") from None
        if reply.status != 200:
            raise elsewhere.error_of(reply.status, body)
        return body
