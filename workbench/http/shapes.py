"""Shorthands for OpenAPI's JSON schemas."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def ref(name: str) -> Json:
    """The schema of that *name*."""
    return {"$ref": f"#/components/schemas/{name}"}


def obj(required: Json, optional: Json | None = None, *, closed: bool = False) -> Json:
    """An object of these members; a *closed* one has no others."""
    schema: Json = {"type": "object", "properties": {**required, **(optional or {})}}
    if required:
        schema["required"] = [*required]
    return {**schema, "additionalProperties": False} if closed else schema


def listed(items: Json) -> Json:
    """An array of *items*."""
    return {"type": "array", "items": items}


def one_of(*values: object) -> Json:
    """One of *values*, which are of one type."""
    kind = "boolean" if isinstance(values[0], bool) else "string"
    return {"type": kind, "enum": [*values]}


def maybe(schema: Json) -> Json:
    """*schema*, which has a type, or null, which means the same as a missing value."""
    return {**schema, "nullable": True}


ANY_OBJECT: Json = {"type": "object"}
TEXT: Json = {"type": "string"}
FLAG: Json = {"type": "boolean"}
WHOLE: Json = {"type": "integer"}
COUNT: Json = {"type": "integer", "format": "int64", "minimum": 0}
DIM: Json = {"type": "integer", "format": "int64", "minimum": -1}

JSON = "application/json"
OCTETS = "application/octet-stream"
EVENT_STREAM = "text/event-stream"
