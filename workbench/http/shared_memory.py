"""Triton's "Shared-Memory Extension": the registered regions, registering and unregistering.

A path without a region means all of its kind. Registering may take long: it reserves memory, or
waits for a GPU.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial
from typing import Any

from workbench.codecs import v2_json
from workbench.core import ServerCore
from workbench.errors import InvalidRequest, RegionNotFound
from workbench.http import v2
from workbench.http.calls import HttpCall
from workbench.http.route import Group, Handler, PathParameter, Route
from workbench.http.shapes import COUNT, TEXT, Json, answer, body, done, listed, maybe, obj, ref
from workbench.shared_memory.regions import CudaRegion, SystemRegion


def _region(call: HttpCall) -> str | None:
    return call.parameters.get("region")


def _status(kind: Any, core: ServerCore, call: HttpCall) -> list[Json]:
    return [region.row for region in core.regions.status(kind, _region(call))]


def _register_system(core: ServerCore, call: HttpCall) -> None:
    """Register what ``{"key", "offset", "byte_size"}`` names; without an offset it is 0.

    Raises as ``Regions.register_system`` does.
    """
    regions, asked = core.regions, call.message("key", "offset", "byte_size")
    key = _text(asked, "key")
    offset = _whole(asked, "offset", 0)
    regions.register_system(call.parameters["region"], key, offset, _whole(asked, "byte_size"))


def _register_cuda(core: ServerCore, call: HttpCall) -> None:
    """Register what ``{"raw_handle": {"b64"}, "device_id", "byte_size"}`` names.

    Raises as ``Regions.register_cuda`` does.
    """
    regions, asked = core.regions, call.message("raw_handle", "device_id", "byte_size")
    handle = asked.get("raw_handle")
    if not isinstance(handle, dict):
        raise InvalidRequest("'raw_handle' is not a JSON object")
    try:
        raw_handle = base64.b64decode(_text(handle, "b64"), validate=True)
    except ValueError as error:
        raise InvalidRequest(f"'b64' is not base64: {error}") from None
    device = _whole(asked, "device_id")
    regions.register_cuda(call.parameters["region"], raw_handle, device, _whole(asked, "byte_size"))


def _text(asked: Json, key: str) -> str:
    value = asked.get(key)
    if not isinstance(value, str):
        raise InvalidRequest(f"{key!r} must be a string, not {_shown(value)}")
    return value


def _whole(asked: Json, key: str, default: int | None = None) -> int:
    value = asked.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{key!r} must be a whole number, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return "missing" if value is None else v2_json.shown(value)


_NBYTES: Json = {**COUNT, "minimum": 1}
_SCHEMAS: Json = {
    "system_regions": listed(
        obj({"name": TEXT, "key": TEXT, "offset": COUNT, "byte_size": _NBYTES})
    ),
    "system_region": obj(
        {"key": {**TEXT, "description": "That of shm_open."}, "byte_size": _NBYTES},
        {"offset": maybe(COUNT)},
        closed=True,
    ),
    "cuda_regions": listed(obj({"name": TEXT, "device_id": COUNT, "byte_size": _NBYTES})),
    "cuda_region": obj(
        {
            "raw_handle": obj({"b64": {**TEXT, "format": "byte"}}),
            "device_id": COUNT,
            "byte_size": _NBYTES,
        },
        closed=True,
    ),
}

_SHARES = (501, 503)  # which is 501 unless the settings allow it
_TAKES = (*_SHARES, *v2.BODY, 404)
_CUDA_EXAMPLE = {"raw_handle": {"b64": "A" * 88}, "device_id": 0, "byte_size": 64}


def _routes(region: Any, register: Handler) -> Iterator[Route]:
    """The routes of one kind of shared memory."""
    kind, status = region.kind, partial(_status, region)

    def unregister(core: ServerCore, call: HttpCall) -> None:
        core.regions.unregister(region, _region(call))

    every = f"/v2/{kind}sharedmemory"
    one = f"{every}/region/{{region}}"
    rows, row = f"{kind}_regions", f"{kind}_region"
    gone, named = "unregistered", (*_SHARES, 404)
    yield Route(f"GET {every}/status", status, rows, "Which regions there are", rows, _SHARES)
    yield Route(f"POST {one}/register", register, f"register_{row}",
        "Use a region", "registered", _TAKES, row)  # fmt: skip
    yield Route(f"GET {one}/status", status, row, "Whether a region is there", rows, named)
    yield Route(f"POST {one}/unregister", unregister, f"unregister_{row}", "Forget it", gone, named)
    yield Route(f"POST {every}/unregister", unregister, f"unregister_{rows}",
        "Forget them all", gone, _SHARES)  # fmt: skip


SHARED_MEMORY = Group(
    "Shared memory",
    (
        *_routes(SystemRegion, _register_system),
        *_routes(CudaRegion, _register_cuda),
    ),
    v2.ERRORS,
    restrict="shared-memory",
    parameters={
        "region": PathParameter(
            b".+", "region", RegionNotFound, {**TEXT, "minLength": 1}, example="example"
        )
    },
    responses={
        "system_regions": answer("What is registered.", ref("system_regions")),
        "cuda_regions": answer("What is registered.", ref("cuda_regions")),
        "registered": done("The region is registered."),
        "unregistered": done("The region is not registered."),
    },
    bodies={
        "system_region": body(ref("system_region"), {"key": "/workbench_example", "byte_size": 64}),
        "cuda_region": body(ref("cuda_region"), _CUDA_EXAMPLE),
    },
    schemas=_SCHEMAS,
)  # fmt: skip
