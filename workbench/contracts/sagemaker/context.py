"""The context that multi-model-server gives to code: the request's headers, and the answer's.

Its methods are multi-model-server's, where a request is number *idx* of a batch: here it is number
0, alone. Headers are one text, ``name: value`` in each line; the status of an answer is the line
``:status``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_OF_SERVERS = {
    "connection", "content-length", "date", "keep-alive", "server", "trailer", "transfer-encoding",
    "upgrade",
}  # fmt: skip
_NOT_TOLD = frozenset((b"authorization", b"content-length", b"cookie"))
_WITH_BODY = {int(each) for each in HTTPStatus if each >= 200} - {204, 205, 304}
_STATUS = b":status"

Header = tuple[bytes, bytes]


def request_text(headers: Iterable[Header]) -> bytes:
    """The *headers* of a request as text: without its token, and the length of its raw body."""
    return _text(header for header in headers if header[0] not in _NOT_TOLD)


def _text(headers: Iterable[Header]) -> bytes:
    return b"\n".join(name + b": " + value for name, value in headers)


def read_answer(text: bytes) -> tuple[int, tuple[Header, ...]]:
    """The status and the headers in the *text* of an answer."""
    headers = dict(_lines(text))
    return int(headers.pop(_STATUS, b"200")), tuple(headers.items())


def _lines(text: bytes) -> Iterator[Header]:
    for line in text.split(b"\n") if text else ():
        name, _, value = line.partition(b": ")
        yield name, value


class RequestHeaders(Mapping[str, str]):
    """Headers by name, in whatever case."""

    def __init__(self, text: bytes = b"") -> None:
        self._values = {
            name.decode("latin-1"): value.decode("utf-8", "replace") for name, value in _lines(text)
        }

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class RequestProcessor:
    """One request: its headers, and what its answer is to have."""

    def __init__(self, text: bytes = b"") -> None:
        self._request = RequestHeaders(text)
        self._response: dict[str, str] = {}
        self._status = 200

    def get_request_property(self, key: str) -> str | None:
        """The header *key* of the request; ``None`` if it has none."""
        return self._request.get(key)

    def get_request_properties(self) -> Mapping[str, str]:
        return self._request

    def add_response_property(self, key: str, value: object) -> None:
        """Give the answer a header. Raises ``ValueError`` for what cannot be one."""
        name, text = key.lower(), str(value)
        if name in _OF_SERVERS or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(text):
            raise ValueError(f"an answer cannot have the header {key[:40]!r}: {text[:40]!r}")
        self._response[name] = text

    def get_response_headers(self) -> dict[str, str]:
        return dict(self._response)

    def report_status(self, code: int, reason_phrase: str | None = None) -> None:  # noqa: ARG002
        """Give the answer a status of HTTP. Raises ``ValueError`` for one without a body."""
        if code not in _WITH_BODY:
            raise ValueError(f"an answer cannot have the status {code!r}")
        self._status = code

    @property
    def answer(self) -> bytes:
        """What the answer is to have, as text. Its media type is what the code returned."""
        headers = {**self._response, _STATUS.decode(): str(self._status)}
        headers.pop("content-type", None)
        return _text((name.encode(), value.encode()) for name, value in headers.items())


class HandlerContext:
    """What functions with one argument more get: *system_properties*, and the request."""

    def __init__(self) -> None:
        self.system_properties: Mapping[str, object] = {}
        self.request_processor = [RequestProcessor()]

    def get_request_header(self, idx: int, key: str) -> str | None:
        return self.request_processor[idx].get_request_property(key)

    def get_all_request_header(self, idx: int) -> Mapping[str, str]:
        return self.request_processor[idx].get_request_properties()

    def set_response_header(self, idx: int, key: str, value: object) -> None:
        self.request_processor[idx].add_response_property(key, value)

    def get_response_headers(self, idx: int) -> dict[str, str]:
        return self.request_processor[idx].get_response_headers()

    def set_response_content_type(self, idx: int, value: str) -> None:
        """As in the toolkit the media type that the function returns wins over this one."""
        self.set_response_header(idx, "content-type", value)

    def get_response_content_type(self, idx: int) -> str | None:
        return self.get_response_headers(idx).get("content-type")

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        self.request_processor[idx].report_status(code, phrase)
