"""Triton's "Shared-Memory Extension" over HTTP: what is registered, and its coming and going.

Each function answers as the extension's own JSON, and takes a parsed body as
*message*. A *name* of ``None`` means all regions of the kind. Registering may
take long: it reserves memory, or waits for a GPU.
"""

from __future__ import annotations

import base64

from workbench.codecs import v2_json
from workbench.codecs.v2_json import Json
from workbench.errors import InvalidRequest
from workbench.http.reply import Reply, json_reply
from workbench.shared_memory import CudaRegion, Regions, SystemRegion

_DONE = Reply(200, (), ())


def system_status(regions: Regions, name: str | None) -> Reply:
    """The rows of the system regions. Raises ``RegionNotFound``."""
    rows = [
        {"name": row.name, "key": row.key, "offset": row.offset, "byte_size": row.nbytes}
        for row in regions.status(SystemRegion, name)
    ]
    return json_reply(v2_json.write(rows))


def register_system(regions: Regions, name: str, message: Json) -> Reply:
    """Register what ``{"key", "offset", "byte_size"}`` names; without an offset it is 0.

    Raises as ``Regions.register_system`` does.
    """
    asked = _members(message, "the request")
    key = _text(asked, "key")
    offset = _whole(asked, "offset", 0)
    regions.register_system(name, key, offset, _whole(asked, "byte_size"))
    return _DONE


def unregister_system(regions: Regions, name: str | None) -> Reply:
    """Forget system regions."""
    regions.unregister(SystemRegion, name)
    return _DONE


def cuda_status(regions: Regions, name: str | None) -> Reply:
    """The rows of the GPUs' regions. Raises ``RegionNotFound``."""
    rows = [
        {"name": row.name, "device_id": row.device, "byte_size": row.nbytes}
        for row in regions.status(CudaRegion, name)
    ]
    return json_reply(v2_json.write(rows))


def register_cuda(regions: Regions, name: str, message: Json) -> Reply:
    """Register what ``{"raw_handle": {"b64"}, "device_id", "byte_size"}`` names.

    Raises as ``Regions.register_cuda`` does.
    """
    asked = _members(message, "the request")
    text = _text(_members(asked.get("raw_handle"), "'raw_handle'"), "b64")
    try:
        raw_handle = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidRequest(f"'b64' is not base64: {error}") from None
    device = _whole(asked, "device_id")
    regions.register_cuda(name, raw_handle, device, _whole(asked, "byte_size"))
    return _DONE


def unregister_cuda(regions: Regions, name: str | None) -> Reply:
    """Forget the GPUs' regions."""
    regions.unregister(CudaRegion, name)
    return _DONE


def _members(value: Json, what: str) -> dict[str, Json]:
    members = v2_json.members(value)
    if members is None:
        raise InvalidRequest(f"{what} is not a JSON object")
    return members


def _text(asked: dict[str, Json], key: str) -> str:
    value = asked.get(key)
    if not isinstance(value, str):
        raise InvalidRequest(f"{key!r} is to be a string, not {_shown(value)}")
    return value


def _whole(asked: dict[str, Json], key: str, default: int | None = None) -> int:
    value = asked.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{key!r} is to be a whole number, not {_shown(value)}")
    return value


def _shown(value: Json) -> str:
    return "missing" if value is None else v2_json.shown(value)
