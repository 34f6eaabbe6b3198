"""Lanes of the short cut; each answers the POSTs of some paths."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from workbench.core import Soon
from workbench.http.access import Headers
from workbench.http.inline import InlineCall
from workbench.http.paths import Target
from workbench.http.reply import Reply


class Head(Protocol):
    """The path and the headers of a request, as values."""

    @property
    def target(self) -> Target:
        """The core's model that answers."""
        ...

    @property
    def request_id(self) -> bytes:
        """The header X-Request-Id."""
        ...


class Lane(ABC):
    """Answers POSTs to paths that end in one of *ends*; its heads are of the class *heads*."""

    ends: tuple[bytes, ...]
    heads: type

    @abstractmethod
    def read_head(self, url: bytes, headers: Headers) -> Any:
        """The head of a POST to *url*; ``None`` leaves it to the application. Raises errors."""

    @abstractmethod
    def call(self, head: Any, body: bytes | memoryview) -> InlineCall | None:
        """The call of the core, if the request may be answered at once."""

    @abstractmethod
    async def answer_later(self, head: Any, body: bytes | memoryview) -> Reply:
        """The reply where none came at once; to cancel it ends the request."""

    @abstractmethod
    def failed(self, error: Exception, head: Any) -> Reply:
        """The reply to a request that ended with *error*."""

    @property
    def soon(self) -> Soon | None:
        """Has work done by the event loop, if it can."""
        return None

    def key(self, head: Any) -> object:
        """A value that requests have in common which may be answered together."""
        target: Target = head.target
        return target

    def tensors_begin(self, head: Any) -> int:  # noqa: ARG002 - of binary lanes
        """The offset of binary tensors, which become views of the body; 0 if it has none."""
        return 0

    def with_json_of(self, head: Any, nbytes: int) -> Any:  # noqa: ARG002 - of binary lanes
        """The *head* of a binary request, with a JSON of *nbytes*."""
        return head
