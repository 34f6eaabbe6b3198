"""Triton's "Shared-Memory Extension", of the system: regions, registering and unregistering.

A path without a region means all of them. Registering may take long: it reserves memory.
"""

from __future__ import annotations

from workbench.annexes.shared_memory.regions import regions_of
from workbench.core import ServerCore
from workbench.errors import InvalidRequest, RegionNotFound
from workbench.http import v2
from workbench.http.calls import HttpCall
from workbench.http.route import Group, PathParameter, Route
from workbench.http.shapes import COUNT, TEXT, Schema, listed, maybe, obj


def _region(call: HttpCall) -> str | None:
    return call.parameters.get("region")


def _status(core: ServerCore, call: HttpCall) -> list[Schema]:
    return [region.row for region in regions_of(core).status(_region(call))]


def _register(core: ServerCore, call: HttpCall) -> None:
    """Register what ``{"key", "offset", "byte_size"}`` names; without an offset it is 0."""
    asked = call.message("key", "offset", "byte_size")
    for member in ("key", "byte_size"):
        if member not in asked:
            raise InvalidRequest(f"{member!r} is missing")
    offset = 0 if asked.get("offset") is None else asked["offset"]
    name, key = call.parameters["region"], asked["key"]
    regions_of(core).register(name, key, offset, asked["byte_size"])


def _unregister(core: ServerCore, call: HttpCall) -> None:
    regions_of(core).unregister(_region(call))


_NBYTES: Schema = {**COUNT, "minimum": 1}
_SCHEMAS: Schema = {
    "system_regions": listed(
        obj({"name": TEXT, "key": TEXT, "offset": COUNT, "byte_size": _NBYTES})
    ),
    "system_region": {
        **obj({"key": TEXT, "byte_size": _NBYTES}, {"offset": maybe(COUNT)}, closed=True),
        "example": {"key": "/workbench_example", "byte_size": 64},
    },
}

_SHARES = (501, 503)  # which is 501 unless the settings allow it
_TAKES = (*_SHARES, *v2.BODY, 404)
_NAMED = (*_SHARES, 404)
_EVERY = "/v2/systemsharedmemory"
_ONE = f"{_EVERY}/region/{{region}}"

SHARED_MEMORY = Group(
    "Shared memory",
    (
        Route(f"GET {_EVERY}/status", _status, "system_regions", "Which regions there are",
            "system_regions", _SHARES),
        Route(f"POST {_ONE}/register", _register, "register_system_region", "Use a region",
            "", _TAKES, "system_region"),
        Route(f"GET {_ONE}/status", _status, "system_region", "Whether a region is there",
            "system_regions", _NAMED),
        Route(f"POST {_ONE}/unregister", _unregister, "unregister_system_region", "Forget it",
            "", _NAMED),
        Route(f"POST {_EVERY}/unregister", _unregister, "unregister_system_regions",
            "Forget them all", "", _SHARES),
    ),
    v2.ERRORS,
    restrict="shared-memory",
    parameters={
        "region": PathParameter(
            b".+", "region", RegionNotFound, {**TEXT, "minLength": 1}, example="example"
        )
    },
    schemas=_SCHEMAS,
)  # fmt: skip
