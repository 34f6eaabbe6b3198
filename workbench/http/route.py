"""A route as a value: the application and its OpenAPI document are both made from these.

A group of routes is one file, which ends with a ``Group``; ``http/routes.py`` lists the groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import unquote_to_bytes

from workbench.errors import WorkbenchError
from workbench.http.calls import HttpCall
from workbench.http.reply import Reply
from workbench.http.shapes import Schema

Handler = Callable[[Any, HttpCall], Any]
"""From the group's service and the call to a reply, or to what it has as JSON; None: nothing."""


class RunsOn(Enum):
    """The place where a handler runs that is no coroutine function."""

    LOOP = "on the event loop: it neither waits nor reads files"
    THREAD = "in a thread"
    WAITING_THREAD = "in a thread that may wait for loads; abandoned if the client goes"


@dataclass(frozen=True, slots=True)
class PathParameter:
    """A name in a path: the *pattern* that it matches, and the *error* for one that is not UTF-8.

    If it is *literal*, it is not unquoted: the handler gets its bytes as Latin-1. *schema* and
    *example* are OpenAPI's; without a schema, neither it nor the brackets around it are in the
    document. *noun* is for messages. *check* raises for values that are not allowed.
    """

    pattern: bytes
    noun: str
    error: type[WorkbenchError]
    schema: Schema | None = None
    example: object = None
    literal: bool = False
    check: Callable[[Mapping[str, str]], object] | None = None


@dataclass(frozen=True, slots=True)
class ErrorEncoder:
    """How errors are answered: *of_error* for exceptions, *of_status* for a status with a message.

    *of_error* is also given the parameters of the path. *schema* names the JSON schema of both.
    Messages about a too large body call it *body*.
    """

    of_error: Callable[[Exception, Mapping[str, str]], Reply]
    of_status: Callable[[int, str], Reply]
    schema: str = "error"
    body: str = "request"


@dataclass(frozen=True, slots=True)
class Route:
    """The handler of one method of one path, and its part of the document.

    *where* is such as ``"GET /v2/models/{model_name}[/versions/{model_version}]/ready"``; what is
    in brackets may be left out. *handler* is a coroutine function, or runs as *runs* says. *name*
    is the operation's. *returns* and *body* name schemas of JSON objects, and media types, with
    commas between them; a body in brackets may be left out. *errors* are statuses. *restrict* is
    its group for the setting ``restrict``, if it differs from that of its ``Group``.
    """

    where: str
    handler: Handler
    name: str
    summary: str
    returns: str
    errors: tuple[int, ...] = ()
    body: str = ""
    runs: RunsOn = RunsOn.THREAD
    restrict: str | None = None

    @property
    def method(self) -> str:
        return self.where.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path, with braces and brackets."""
        return self.where.partition(" ")[2]


@dataclass(frozen=True, slots=True)
class Group:
    """Routes of one subject, which is their section (*title*) in the document.

    *service* makes the handlers' first argument of the data plane, once for each application:
    without it that is the core. *parameters* are those of the paths, *schemas* those of the JSON
    objects that only this group has, by name. *unmatched* is the message for a path that has a
    prefix of the group and matches no route.
    """

    title: str
    routes: tuple[Route, ...]
    errors: ErrorEncoder
    service: Callable[[Any], Any] = lambda plane: plane.core
    restrict: str = ""
    parameters: Mapping[str, PathParameter] = field(default_factory=dict)
    schemas: Schema = field(default_factory=dict)
    unmatched: str = "there is nothing at this path"

    def restriction(self, route: Route) -> str:
        """The group of *route* for the setting ``restrict``, or ""."""
        return self.restrict if route.restrict is None else route.restrict


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A path with braces and brackets, compiled to match the paths of requests."""

    pattern: re.Pattern[bytes]
    parameters: Mapping[str, PathParameter]

    @classmethod
    def of(cls, path: str, parameters: Mapping[str, PathParameter]) -> PathPattern:
        """The pattern of *path*; slashes at its end do not matter."""
        pattern = b""
        for part in re.findall(r"{\w+}|[\[\]]|[^\[\]{}]+", path):
            if part[0] == "{":
                name = part[1:-1]
                pattern += b"(?P<%s>%s)" % (name.encode(), parameters[name].pattern)
            else:
                pattern += {"[": b"(?:", "]": b")?"}.get(part) or re.escape(part.encode())
        end = b"/?" if "{" in path else b"/*"
        return cls(re.compile(pattern + end), parameters)

    def match(self, raw_path: bytes) -> dict[str, str] | None:
        """The parameters in *raw_path*, each decoded once; ``None`` if it does not match.

        Raises the parameter's error for one that is not UTF-8, and as its check does.
        """
        match = self.pattern.fullmatch(raw_path)
        if match is None:
            return None
        found = {name: quoted for name, quoted in match.groupdict().items() if quoted is not None}
        parameters = {name: self._decoded(name, quoted) for name, quoted in found.items()}
        for name in parameters:
            if check := self.parameters[name].check:
                check(parameters)
        return parameters

    def _decoded(self, name: str, quoted: bytes) -> str:
        parameter = self.parameters[name]
        if parameter.literal:
            return quoted.decode("latin-1")
        try:
            return unquote_to_bytes(quoted).decode()
        except UnicodeDecodeError:
            message = f"the name of the {parameter.noun} in the path is not UTF-8"
            raise parameter.error(message) from None
