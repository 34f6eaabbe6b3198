"""Shorthands for OpenAPI's JSON schemas."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """The schema of that *name*."""
    return {"$ref": f"#/components/schemas/{name}"}


def obj(required: Schema, optional: Schema | None = None, *, closed: bool = False) -> Schema:
    """An object of these members; a *closed* one has no others."""
    schema: Schema = {"type": "object", "properties": {**required, **(optional or {})}}
    if required:
        schema["required"] = [*required]
    return {**schema, "additionalProperties": False} if closed else schema


def listed(items: Schema) -> Schema:
    """An array of *items*."""
    return {"type": "array", "items": items}


def one_of(*values: object) -> Schema:
    """One of *values*, which are of one type."""
    kind = "boolean" if isinstance(values[0], bool) else "string"
    return {"type": kind, "enum": [*values]}


def maybe(schema: Schema) -> Schema:
    """*schema*, which has a type, or null, which means the same as a missing value."""
    return {**schema, "nullable": True}


ANY_OBJECT: Schema = {"type": "object"}
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
WHOLE: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "format": "int64", "minimum": 0}
DIM: Schema = {"type": "integer", "format": "int64", "minimum": -1}

JSON = "application/json"
OCTETS = "application/octet-stream"
EVENT_STREAM = "text/event-stream"
