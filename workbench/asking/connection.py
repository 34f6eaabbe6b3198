"""A server elsewhere, as a Python object: the V2 protocol over HTTP, as a client speaks it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from workbench import errors
from workbench.arguments import explained, explains_arguments
from workbench.asking.answers import answer_of
from workbench.asking.asks import Asks
from workbench.asking.given import tensors_of
from workbench.asking.question import Question
from workbench.asking.replies import (
    HEADER_SIZE,
    about,
    absences,
    checked,
    counted_rows,
    event_entries,
    expecting,
    index_rows,
    model_status,
    options_of,
    read_outputs,
    tensor_specs,
)
from workbench.codecs import v2_binary, v2_json
from workbench.errors import WorkbenchError
from workbench.image_forms import image_forms
from workbench.model import ModelId, ModelState, Signature
from workbench.removed import no_more_verb
from workbench.rows import columns_in
from workbench.running import find_token
from workbench.spelling import meant
from workbench.tensor import Tensor, has_missing
from workbench.views.objects import EventList, Model, ModelList

T = TypeVar("T")

_BINARY = "binary_tensor_data"  # the name of the protocol's extension
_FUNCTION = "python"  # the platform of Python functions
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
    address = address_of(url)
    return Connection(address, find_token(address) if token is None else token, timeout_s)


def address_of(url: object) -> str:
    """*url* as the address of a server, without a path. Raises ``UsageError``."""
    if not isinstance(url, str | int) or isinstance(url, bool):
        raise errors.UsageError(
            f"the url of a server is a text, such as wb.url, not {type(url).__name__}"
        )
    text = str(url).strip()
    if text.isdecimal():
        text = f"127.0.0.1:{text}"
    address = (text if "://" in text else f"http://{text}").rstrip("/").removesuffix("/v2")
    if not _is_address(address):
        raise errors.UsageError(
            f"{url!r} is no address of a server: give one such as http://127.0.0.1:8000, or a port"
        )
    return address


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(str(httpx.URL(text)))
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx.InvalidURL):  # such as a port above 65535
        return False


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
        self._token = token
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
            self._about = self._told("the metadata of the V2 protocol", about, "GET", "v2")
        except BaseException:
            self.close()
            raise

    # ── asking ──

    def _infer(self, question: Question) -> Any:
        request = self.request(question)
        with self._of_model():
            return answer_of(read_outputs(self._send(request)), raw=question.raw)

    async def _ainfer(self, question: Question) -> Any:
        """To cancel the task closes its connection, by which a workbench ends the request."""
        await asyncio.to_thread(self.signature, question.model, question.version)
        request = self.request(question)
        with self._of_model(), self._failing():
            async with httpx.AsyncClient(**self._settings) as client:
                reply = await client.send(request)
            return answer_of(read_outputs(checked(reply)), raw=question.raw)

    def _stream(self, question: Question) -> Iterator[Any]:
        raise errors.UsageError(
            "streams are for the Workbench itself; clients of HTTP ask for "
            f"{self.url}/{_path(question.model, question.version)}/generate_stream"
        )

    def request(self, question: Question) -> httpx.Request:
        """The request that asks *question*, not sent yet."""
        model, version = question.model, question.version
        tensors = self.tensors(model, question.inputs, version)
        head, tail = self._written(tensors, question.output)
        headers = {"Content-Type": "application/json"}
        if tail:
            headers = {"Content-Type": "application/octet-stream", HEADER_SIZE: str(len(head))}
        limit = question.timeout_s or httpx.USE_CLIENT_DEFAULT
        path = f"{_path(model, version)}/infer"
        return self._http.build_request(
            "POST", path, content=head + tail, headers=headers, timeout=limit
        )

    def tensors(self, model: str, inputs: object, version: int | None = None) -> dict[str, Tensor]:
        """*inputs* as *model* takes them, by name. Raises ``InvalidRequest``, ``UsageError``."""
        signature = self.signature(model, version)
        if not signature.inputs and not isinstance(inputs, Mapping):
            raise errors.UsageError(
                f"{self.url} does not say what {model!r} takes: pass a dict of arrays by name, "
                "in the model's own datatypes"
            )
        return tensors_of(ModelId(model, version or 1), signature, inputs, apart=True)

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
        rows = self._index()
        why = absences(self.events) if self._is_workbench else None
        counted = {}
        if self._has("statistics"):
            counted = self._told("statistics of models", counted_rows, "GET", "v2/models/stats")
        models = [model_status(row, counted, why) for row in rows]
        return ModelList(Model.of(status, self._described) for status in models)

    def _index(self) -> list[dict[str, Any]]:
        """The rows of the repository's index."""
        try:
            return self._told(
                "an index of models", index_rows, "POST", f"{_REPOSITORY}index", json={}
            )
        except (errors.ModelNotFound, errors.RunFailed):
            raise errors.NotSupported(f"{self.url} lists no models") from None

    def step_of_load(self, model: str) -> str:
        """What the load of *model* does now, in words; ``""`` where the server does not tell."""
        loading = (ModelState.LOADING.value, model)
        with suppress(errors.NotSupported):
            for row in self._index():
                if (row.get("state"), row["name"]) == loading:
                    return row.get("reason") or ""
        return ""

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

    @property
    def _is_workbench(self) -> bool:
        return bool(self._about["name"] == "workbench")

    def load(self, model: str) -> None:
        """Load *model*, or load it anew. Raises ``LoadFailed``, ``ModelNotFound`` and others."""
        try:
            self._verb(model, "load")
        except errors.ModelNotFound as error:
            raise self._meant(model, error) from None

    def unload(self, model: str) -> None:
        """Unload *model*. Raises ``ModelNotFound`` and others."""
        from workbench.asking.card import check_known  # for who looks at models

        if self._is_workbench:  # which unloads any name without an error, as Triton does
            check_known(model, self.names)
        self._verb(model, "unload")

    # ── events ──

    @property
    def events(self) -> EventList:
        """What happened at the server, oldest first. Raises ``NotSupported`` if it tells nothing.

        Only a workbench tells.
        """
        return self.events_after(0)

    def events_after(self, number: int) -> EventList:
        """The events numbered above *number*."""
        if not self._is_workbench:
            raise errors.NotSupported(f"{self.url} is no workbench: it tells no events")
        return EventList(
            self._told("events", event_entries, "GET", "events", params={"after": number})
        )

    def close(self) -> None:
        """Close the connection; the server runs on."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def __repr__(self) -> str:
        return f"connection to {self._about['name']} at {self.url}"

    def _verb(self, model: str, verb: str) -> None:
        try:
            self._ask("POST", f"{_REPOSITORY}models/{_quoted(model)}/{verb}", json={})
        finally:  # not before: another thread may ask meanwhile
            self._signatures.clear()

    def signature(self, model: str, version: int | None = None) -> Signature:
        """The inputs and outputs of *model*, as the server tells them. Raises ``ModelNotFound``."""
        known = self._signatures.get((model, version))
        if known is None:
            told = partial(self._signature, model, version)
            what = "the inputs and outputs of a model"
            try:
                known = self._told(what, told, "GET", _path(model, version))
            except errors.ModelNotFound as error:
                raise self._meant(model, error) from None
            self._signatures[model, version] = known
        return known

    def _signature(self, model: str, version: int | None, told: Mapping[str, Any]) -> Signature:
        inputs, outputs = tensor_specs(told.get("inputs")), tensor_specs(told.get("outputs"))
        # in which form it takes the images, the server knows; a function takes arrays
        is_function = told.get("platform") == _FUNCTION
        images = {} if is_function else image_forms(ModelId(model, version or 1), inputs, {})
        columns: tuple[str, ...] = ()
        if len(inputs) > 1 or self._is_workbench:
            optional, parameters = self._configured(model, version)
            columns = columns_in(parameters, inputs)
            inputs = {n: replace(s, optional=n in optional) for n, s in inputs.items()}
        if is_function:  # which texts may be missing, the server knows
            inputs = {n: replace(s, missing=s.datatype == "BYTES") for n, s in inputs.items()}
        platform = told.get("platform", "")
        return Signature(platform, inputs, outputs, image_forms=images, columns=columns)

    def _configured(self, model: str, version: int | None) -> tuple[set[str], dict[str, str]]:
        """The inputs that a request to *model* may leave out, and its parameters.

        As far as the server tells them: else all inputs are given by name.
        """
        if self._has("model_configuration"):
            with suppress(WorkbenchError):
                path = f"{_path(model, version)}/config"
                return self._told("a model's configuration", options_of, "GET", path)
        return set(), {}

    def _written(self, tensors: Mapping[str, Tensor], output: str | None) -> tuple[bytes, bytes]:
        """A request as JSON, and the binary data after it where the server takes that.

        Texts of which one is missing are JSON.
        """
        binary = self._has(_BINARY)
        entries: list[dict[str, Any]] = []
        tail: list[bytes] = []
        for name, tensor in tensors.items():
            entry: dict[str, Any]
            entry = {"name": name, "shape": tensor.shape, "datatype": tensor.datatype}
            if binary and not (tensor.datatype == "BYTES" and has_missing(tensor.array)):
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

    def _told(self, what: str, read: Callable[[Any], T], method: str, url: str, **parts: Any) -> T:
        """What *read* makes of the JSON that is answered. Raises ``NotSupported`` for another."""
        reply = self._ask(method, url, **parts)
        with expecting(what, reply):
            return read(reply.json())

    def _has(self, extension: str) -> bool:
        extensions: Sequence[str] = self._about["extensions"]
        return extension in extensions

    def _ask(self, method: str, url: str, **parts: Any) -> httpx.Response:
        return self._send(self._http.build_request(method, url, **parts))

    def _send(self, request: httpx.Request) -> httpx.Response:
        with self._failing():
            return checked(self._http.send(request))

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


def _quoted(model: str) -> str:
    """*model* as a part of a path. Raises ``ModelNotFound`` if it is empty."""
    if not model:
        raise errors.ModelNotFound(f"{model!r} cannot be the name of a model")
    return quote(model, safe="")


def _path(model: str, version: int | None) -> str:
    path = f"v2/models/{_quoted(model)}"
    return path if version is None else f"{path}/versions/{version}"
