"""A request as a value: its path, headers and whole body."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qs

from litestar.types import Receive

from workbench.auth import closed
from workbench.codecs import v2_json
from workbench.core import ServerCore
from workbench.errors import InvalidRequest, RequestTooLarge, WorkbenchError
from workbench.http.compression import SETTING, inflate
from workbench.http.paths import read_version
from workbench.nbytes import show_nbytes

T = TypeVar("T")

_SHOWN_CHARS = 40


async def _never() -> None:
    raise AssertionError("only a call over a connection can lose its client")


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One request, with its *body* as received.

    *parameters* are those of the path. The decompressed body may have *limit_nbytes*, as
    *limited_by* says. *headers* are in lower case; *gone* returns once the client went away.
    Functions may run for it only if *functions* is true.
    """

    body: bytes = b""
    parameters: Mapping[str, str] = field(default_factory=dict)
    headers: Sequence[tuple[bytes, bytes]] = ()
    query: str = ""
    limit_nbytes: int = 0
    limited_by: str = SETTING
    functions: bool = True
    gone: Callable[[], Awaitable[object]] = _never

    @property
    def name(self) -> str:
        """The model that the path names; only for paths that name one."""
        return self.parameters["model_name"]

    @property
    def version(self) -> int | None:
        """The version that the path names, if it does. Raises ``VersionNotFound``."""
        text = self.parameters.get("model_version")
        return None if text is None else read_version(self.name, text)

    def header(self, name: bytes) -> bytes:
        """The last header of that *name*, or nothing."""
        return dict(self.headers).get(name, b"")

    def argument(self, name: str) -> str | None:
        """The first parameter of that *name* in the query, or ``None``."""
        values = parse_qs(self.query, keep_blank_values=True).get(name)
        return values[0] if values else None

    def check_query(self, *known: str) -> None:
        """Raise ``InvalidRequest`` for a parameter in the query that is not *known*."""
        check_known("query parameter", parse_qs(self.query, keep_blank_values=True), known)

    def inflated(self) -> bytes:
        """The body, decompressed. Raises as ``inflate`` does."""
        coding = self.header(b"content-encoding")
        return inflate(self.body, coding, self.limit_nbytes, self.limited_by)

    def message(self, *known: str) -> dict[str, Any]:
        """The body's JSON object, as plain values; an empty body is an empty one.

        If members are *known*, any other is refused. Raises ``InvalidRequest``, and as ``inflate``
        does.
        """
        body = self.inflated()
        if not body.strip():
            return {}
        message = v2_json.plain(v2_json.parse(body))
        if not isinstance(message, dict):
            raise InvalidRequest("the body is not a JSON object")
        if known:
            check_known("member", message, known)
        return message


def check_known(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``InvalidRequest`` if a name that is *given* is not *known*; *what* they name."""
    for name in given:
        if name not in known:
            told = f"there is no {what} {name[:_SHOWN_CHARS]!r} in this request"
            raise InvalidRequest(f"{told}; available: {', '.join(known)}")


async def in_thread(core: ServerCore, work: Callable[[], T], *, waits: bool = False) -> T:
    """The result of *work* on a thread of *core*; another thread if *work* *waits* for loads."""
    return await asyncio.wrap_future(core.soon(work, waits=waits))


async def authorize_run(
    core: ServerCore, call: HttpCall, name: str, version: int | None = None
) -> None:
    """Raise ``AccessDenied`` if *call* may not run the core's model *name*, a function.

    The name may belong to another model when the request runs: it is checked again there.
    """
    if call.functions:
        return
    try:
        calls = await in_thread(core, partial(core.status.calls_function, name, version))
    except WorkbenchError:  # whoever runs it reports that
        return
    if calls:
        raise closed("functions")


async def read_body(
    headers: Mapping[bytes, bytes], receive: Receive, limit_nbytes: int, limited_by: str, what: str
) -> bytes:
    """The whole body, called *what*. Raises ``RequestTooLarge`` as soon as it is known to be."""
    what = "request" if b"inference-header-content-length" in headers else what
    declared = headers.get(b"content-length", b"0")
    if declared.isdigit() and (len(declared) > 18 or int(declared) > limit_nbytes):
        raise _too_large(what, declared.decode(), limit_nbytes, limited_by)
    chunks: list[bytes] = []
    nbytes = 0
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("the client went away before its request was whole")
        chunk = message.get("body", b"")
        nbytes += len(chunk)
        if nbytes > limit_nbytes:
            raise _too_large(what, str(nbytes), limit_nbytes, limited_by)
        chunks.append(chunk)
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(what: str, nbytes: str, limit_nbytes: int, limited_by: str) -> RequestTooLarge:
    return RequestTooLarge(
        f"the {what} has {nbytes} bytes; at most {limit_nbytes} are taken "
        f"({show_nbytes(limit_nbytes)}, {limited_by})"
    )
