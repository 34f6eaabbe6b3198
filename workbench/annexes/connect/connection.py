"""A server elsewhere, as a Python object: the V2 protocol over HTTP, as a client speaks it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar

import httpx

from workbench import errors
from workbench.annexes.connect import listing
from workbench.arguments import explained, explains_arguments
from workbench.client import elsewhere
from workbench.client.answers import answer_of
from workbench.client.asks import Asks
from workbench.client.coercion import tensors_of
from workbench.client.elsewhere import path_of_model
from workbench.client.question import Question
from workbench.codecs import v2_binary, v2_json
from workbench.errors import WorkbenchError
from workbench.model import ModelId, Signature
from workbench.removed import no_more_verb
from workbench.rows import columns_in
from workbench.running import find_token
from workbench.spelling import meant
from workbench.tensor import Tensor
from workbench.views.objects import EventList, Model, ModelList

T = TypeVar("T")

_REPOSITORY = "v2/repository/"
_KEPT_S = 2.0  # for the next request; servers close idle connections after 5 s, often more


@explained
def connect(url: str | int, *, token: str | None = None, timeout_s: float = 60.0) -> Connection:
    """The server at *url*: a workbench in another process or on another machine, Triton, KServe.

    A port alone is one of this machine. *token* is what it asks of each request; without one, that
    of your own workbench at *url* is found. *timeout_s* is how long an answer may take. Raises
    ``ServerNotRunning``, ``NotSupported`` if the server does not speak V2, ``TokenRequired`` if it
    asks for a token and none is known, ``UsageError``.
    """
    address = elsewhere.address_of(url)
    return Connection(address, find_token(address) if token is None else token, timeout_s)


@explains_arguments
class Connection(Asks):
    """The models of the server at *url*. It may be used by several threads, and by ``with``.

    Where the server tells a status of HTTP, its error is of the class that a workbench would
    raise, with the message of the server. *transport* replaces the network.
    """

    def __init__(
        self, url: str, token: str, timeout_s: float, transport: httpx.MockTransport | None = None
    ) -> None:
        self.url = url
        self._settings: dict[str, Any] = {
            "base_url": self.url,
            "headers": {"Authorization": f"Bearer {token}"} if token else {},
            "timeout": timeout_s,
            "transport": transport,
            "verify": httpx.create_ssl_context(),  # once: it takes its time
            "limits": httpx.Limits(keepalive_expiry=_KEPT_S),
        }
        self._http = httpx.Client(**self._settings)
        self._signatures: dict[tuple[str, int | None], Signature] = {}
        try:
            self._about: Mapping[str, Any] = self._ask(_about, "GET", "v2")
        except BaseException:
            self.close()
            raise

    # ── asking ──

    def _infer(self, question: Question) -> Any:
        request = self._request(question)
        with self._of_model():
            return answer_of(_outputs(self._send(**request)), raw=question.raw)

    async def _ainfer(self, question: Question) -> Any:
        """To cancel the task closes its connection, by which a workbench ends the request."""
        request = await asyncio.to_thread(self._request, question)
        with self._of_model(), self._failing():
            async with httpx.AsyncClient(**self._settings) as client:
                reply = await client.request(**request)
            return answer_of(_outputs(_checked(reply)), raw=question.raw)

    def _stream(self, question: Question) -> Iterator[Any]:
        raise errors.UsageError(
            "streams are for the Workbench itself; clients of HTTP ask for "
            f"{self.url}/{path_of_model(question.model, question.version)}/generate_stream"
        )

    def _request(self, question: Question) -> dict[str, Any]:
        """The request that asks *question*, as httpx takes it."""
        model, version = question.model, question.version
        signature = self.signature(model, version)
        if not signature.inputs and not isinstance(question.inputs, Mapping):
            raise errors.UsageError(
                f"{self.url} does not say what {model!r} takes: pass a dict of arrays by name, "
                "in the model's own datatypes"
            )
        named = ModelId(model, version or 1)
        tensors = tensors_of(named, signature, question.inputs, apart=True)
        body, headers = elsewhere.write_request(
            tensors, question.output, binary=self._has(elsewhere.BINARY)
        )
        limit = question.timeout_s or httpx.USE_CLIENT_DEFAULT
        url = f"{path_of_model(model, version)}/infer"
        return {"method": "POST", "url": url, "content": body, "headers": headers, "timeout": limit}

    def signature(self, model: str, version: int | None = None) -> Signature:
        """The inputs and outputs of *model*, as the server tells them. Raises ``ModelNotFound``."""
        known = self._signatures.get((model, version))
        if known is None:
            told = partial(self._signature, model, version)
            try:
                known = self._ask(told, "GET", path_of_model(model, version))
            except errors.ModelNotFound as error:
                raise self._meant(model, error) from None
            self._signatures[model, version] = known
        return known

    def _signature(self, model: str, version: int | None, told: Mapping[str, Any]) -> Signature:
        signature = elsewhere.signature_of(ModelId(model, version or 1), told)
        told_more = self._has("model_configuration")
        if not told_more or not (len(signature.inputs) > 1 or self._is_workbench):
            return signature
        with suppress(WorkbenchError):  # then all inputs are needed, and by their names
            path = f"{path_of_model(model, version)}/config"
            return self._ask(partial(_configured, signature), "GET", path)
        return signature

    # ── models ──

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all models, loaded or not. Raises ``NotSupported`` as ``models``."""
        return tuple(dict.fromkeys(row["name"] for row in self._index()))

    @property
    def models(self) -> ModelList:
        """The models of the server, with their state, and the figures that it tells.

        Raises ``NotSupported`` where the server lists no models.
        """
        rows, counted = self._index(), {}
        if self._has("statistics"):
            counted = self._ask(listing.counted_rows, "GET", "v2/models/stats")
        why = listing.absences(self.events) if self._is_workbench else None
        models = [listing.model_status(row, counted, why) for row in rows]
        return ModelList(Model.of(status, self._described) for status in models)

    def _index(self) -> list[dict[str, Any]]:
        """The rows of the repository's index."""
        try:
            return self._ask(listing.index_rows, "POST", f"{_REPOSITORY}index", json={})
        except (errors.ModelNotFound, errors.RunFailed):
            raise errors.NotSupported(f"{self.url} lists no models") from None

    def _described(self, model: ModelId) -> Signature | None:
        try:
            return self.signature(model.name, model.version or None)
        except WorkbenchError:  # it is broken, and its state says why
            return None

    def __getitem__(self, name: str) -> None:
        raise errors.UsageError(
            "the card of a model is for the Workbench itself: wb.models has its state, "
            f"wb.signature({name!r}) what it takes"
        )

    def _meant(self, model: str, error: errors.ModelNotFound) -> errors.ModelNotFound:
        # of another server nothing is asked that the user did not ask for
        return super()._meant(model, error) if self._is_workbench else error

    def load(self, model: str) -> None:
        """Load *model*, or load it anew. Raises ``LoadFailed``, ``ModelNotFound`` and others."""
        self._verb(model, "load")

    def unload(self, model: str) -> None:
        """Unload *model*. Raises ``ModelNotFound`` and others."""
        from workbench.client.card import check_known  # for who looks at models

        if self._is_workbench:  # which unloads any name without an error, as Triton does
            check_known(model, self.names)
        self._verb(model, "unload")

    def _verb(self, model: str, verb: str) -> None:
        path = path_of_model(model).replace("v2/", _REPOSITORY, 1)
        try:
            self._send("POST", f"{path}/{verb}", json={})
        except errors.ModelNotFound as error:
            raise self._meant(model, error) from None
        finally:  # not before: another thread may ask meanwhile
            self._signatures.clear()

    # ── events ──

    @property
    def events(self) -> EventList:
        """The events of the server, oldest first. Raises ``NotSupported`` if it has no events.

        Only a workbench has them.
        """
        return self.events_after(0)

    def events_after(self, number: int) -> EventList:
        """The events numbered above *number*."""
        if not self._is_workbench:
            raise errors.NotSupported(f"{self.url} is no workbench: it tells no events")
        return EventList(
            self._ask(listing.event_entries, "GET", "events", params={"after": number})
        )

    # ── the connection ──

    def close(self) -> None:
        """Close the connection; the server runs on."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"connection to {self._about['name']} at {self.url}"

    def __getattr__(self, name: str) -> Any:
        raise self._lacks(name)

    def __setattr__(self, name: str, value: object) -> None:
        if name != "url" and not name.startswith("_") and not hasattr(type(self), name):
            raise self._lacks(name)
        super().__setattr__(name, value)

    def _lacks(self, name: str) -> errors.AttributeUnknown:
        gone = no_more_verb(f"wb.{name}", name)
        cure = (f": {gone}" if gone else meant(name, dir(type(self)))) or (
            ": serving, pinning, settings and measuring are for the Workbench itself, in the "
            "process of the server"
        )
        return errors.AttributeUnknown(f"a connection has no {name!r} to use or set{cure}")

    @property
    def _is_workbench(self) -> bool:
        return bool(self._about["name"] == "workbench")

    def _has(self, extension: str) -> bool:
        return extension in self._about["extensions"]

    def _ask(self, read: Callable[[Any], T], method: str, url: str, **parts: Any) -> T:
        """The answer's JSON, as *read* returns it. Raises ``NotSupported`` if *read* fails."""
        reply = self._send(method, url, **parts)
        with _reading(reply):
            return read(reply.json())

    def _send(self, method: str, url: str, **parts: Any) -> httpx.Response:
        with self._failing():
            return _checked(self._http.request(method, url, **parts))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """For requests. Raises ``ServerNotRunning``, ``DeadlineExceeded``, ``UsageError``."""
        if self._http.is_closed:
            raise errors.UsageError(f"the connection to {self.url} is closed: connect() again")
        try:
            yield
        except httpx.TimeoutException:
            raise errors.DeadlineExceeded(f"{self.url} did not answer in time") from None
        except httpx.TransportError as error:
            told = re.sub(r"^\[Errno -?\d+\] ", "", str(error))
            raise errors.ServerNotRunning(f"no server answers at {self.url}: {told}") from None

    @contextmanager
    def _of_model(self) -> Iterator[None]:
        """After an error of an inference, signatures are asked for anew: models may be others."""
        try:
            yield
        except WorkbenchError:
            self._signatures.clear()
            raise


def _checked(reply: httpx.Response) -> httpx.Response:
    """The *reply* if it is one of success; else it raises the error that the reply tells."""
    if reply.is_success:
        return reply
    raise elsewhere.error_of(reply.status_code, reply.content)


def _reading(reply: httpx.Response) -> Any:
    return elsewhere.reading(f"{reply.request.method} {reply.request.url}", reply.content)


def _about(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """The server's metadata. A server written in Go has ``null`` for an empty list."""
    return {"name": told["name"], "extensions": [*(told.get("extensions") or ())]}


def _configured(signature: Signature, config: Mapping[str, Any]) -> Signature:
    """The *signature* with the optional inputs and the columns that a model's *config* tells."""
    optional = {row["name"] for row in config["input"] if row.get("optional")}
    parameters = config.get("parameters") or {}
    texts = {key: each["string_value"] for key, each in parameters.items()}
    columns = columns_in(texts, signature.inputs)
    inputs = {n: replace(s, optional=n in optional) for n, s in signature.inputs.items()}
    return replace(signature, inputs=inputs, columns=columns)


def _outputs(reply: httpx.Response) -> dict[str, Tensor]:
    """The outputs of a V2 response, of JSON and the binary data after it.

    Raises ``NotSupported`` if it is none.
    """
    outputs = {}
    with _reading(reply):
        body = memoryview(reply.content)
        size = int(reply.headers.get(elsewhere.HEADER_SIZE, len(body)))
        rest = body[size:]
        for entry in v2_json.plain(v2_json.parse(bytes(body[:size])))["outputs"]:
            name, kind, shape = entry["name"], entry["datatype"], tuple(map(int, entry["shape"]))
            nbytes = (entry.get("parameters") or {}).get("binary_data_size")
            if nbytes is None:
                outputs[name] = v2_json.decode(name, kind, shape, entry["data"])
            else:
                outputs[name] = v2_binary.decode(name, kind, shape, rest[:nbytes])
                rest = rest[nbytes:]
    return outputs
