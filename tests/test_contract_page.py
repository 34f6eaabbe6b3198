"""The tables of docs/contract.md list what the code serves, and nothing else.

Each function below makes the rows of one kind of table from the code; the page may spread these
rows over several tables, one for each contract.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from workbench.annexes.modelmesh.environment import Environment
from workbench.annexes.modelmesh.runtime import ModelMesh
from workbench.annexes.sagemaker import container_http, endpoint_http, refusals
from workbench.annexes.sagemaker.payloads import media
from workbench.codecs import v2, v2_parameters
from workbench.core import ServerCore
from workbench.grpc import convert
from workbench.grpc import status as grpc_status
from workbench.grpc.service import Service
from workbench.grpc.standard import health, reflection
from workbench.grpc.v2 import V2
from workbench.http import events
from workbench.http import status as http_status
from workbench.http.openapi import document as openapi
from workbench.http.openapi.schemas import SCHEMAS
from workbench.http.routes import GROUPS
from workbench.image_forms import PARAMETERS as OF_IMAGES
from workbench.protos import message_class
from workbench.protos import service as described
from workbench.repository import config
from workbench.settings import Settings

PAGE = Path(__file__).parent.parent / "docs" / "contract.md"
Row = tuple[str, ...]


def quoted(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


# ── HTTP ──


def paths() -> Iterator[Row]:
    """Each route, what it takes and gives, and the statuses of its errors."""
    for group in GROUPS:
        for route in group.routes:
            taken = content(openapi.contents(route.body))
            given = content(openapi.contents(route.returns))
            yield (
                f"`{route.where}`", taken, given, ", ".join(map(str, sorted({*route.errors}))),
            )  # fmt: skip


def content(found: Mapping[str, Any]) -> str:
    """The objects and media types that a body of OpenAPI may have."""
    if {*found} in ({*media.KNOWN}, {*media.WRITTEN}):
        return "[payload](#media-types)"
    return quoted(
        each["schema"]["$ref"].rpartition("/")[2] if "$ref" in each["schema"] else name
        for name, each in found.items()
    )


def objects() -> Iterator[Row]:
    """Each JSON object and its members; those of an object that has no name are after a dot."""
    for schemas in (SCHEMAS, *(group.schemas for group in GROUPS)):
        for name, schema in schemas.items():
            if found := [*members(schema)]:
                yield f"`{name}`", quoted(found)


def members(schema: Mapping[str, Any], place: str = "") -> Iterator[str]:
    if schema.get("type") == "array":
        yield from members(schema["items"], place)
    for name, member in schema.get("properties", {}).items():
        inner = [*members(member, f"{place}{name}.")]
        yield from inner or [f"{place}{name}"]


def query_parameters() -> Iterator[Row]:
    for module in (endpoint_http, events, container_http):
        yield from names_in(module, r'argument\("(\w+)"')


def names_in(module: ModuleType, pattern: str) -> Iterator[Row]:
    """The names that the source of *module* has where *pattern* matches."""
    for found in re.findall(pattern, inspect.getsource(module)):
        yield (f"`{found}`",)


def v2_parameters_read() -> Iterator[Row]:
    """The names of parameters of requests, inputs and outputs that anything is done with."""
    yield from ((f"`{name}`",) for name in v2_parameters._KINDS)
    for pattern in (r'parameters(?:\.get\(|\[)"(\w+)"', r'"(\w+)" in parameters'):
        for module in (v2, v2_parameters, convert):
            yield from names_in(module, pattern)
    yield from names_in(v2_parameters, r' key = "(\w+)"')
    yield (f"`{convert._EMPTY_END}`",)


def media_types() -> Iterator[Row]:
    """Each media type of a payload, and its other names."""
    for name in media.KNOWN:
        yield f"`{name}`", quoted(other for other, usual in media.ALIASES.items() if usual == name)


def statuses(table: Mapping[type, Any], show: Callable[[Any], str]) -> Iterator[Row]:
    """Each status of *table*, and the errors that have it unless a class below has another."""
    for status in sorted({*table.values()}, key=lambda each: getattr(each, "value", each)):
        yield show(status), quoted(each.__name__ for each in table if table[each] == status)


def http_statuses(table: Mapping[type, int]) -> Iterator[Row]:
    return statuses(table, lambda status: f"{status} {HTTPStatus(status).phrase}")


# ── gRPC ──


def services() -> list[Service]:
    core = ServerCore(Settings.of(environ={}))
    found = [V2(core, functions=True).service(), ModelMesh(core, Environment()).service()]
    found.append(health([each.name for each in found], core))
    return [*found, *reflection(found, core)]


def methods() -> Iterator[tuple[str, Any]]:
    for each in services():
        name = each.name.replace(".v1.", ".v1alpha.") if each.file == "reflection" else each.name
        for method in described(each.file, name).methods:
            assert method.name in each.methods
            yield f"{each.name}/{method.name}", method


def rpcs() -> Iterator[Row]:
    """Each method, and the fields of its messages."""
    for name, method in methods():
        yield f"`{name}`", fields(method.input_type), fields(method.output_type)


def fields(message: Descriptor) -> str:
    return quoted(field.name for field in message.fields)


def messages() -> Iterator[Row]:
    """The messages within those of inference and statistics, and their fields."""
    found: dict[str, Descriptor] = {}

    def look(message: Descriptor) -> None:
        for field in message.fields:
            inner = message_of(field)
            if inner is not None and inner.name not in found and inner.name != "ModelConfig":
                found[inner.name] = inner
                look(inner)

    for name, method in methods():
        if name.startswith("inference."):
            look(method.input_type)
            look(method.output_type)
    return ((f"`{name}`", fields(message)) for name, message in found.items())


def message_of(field: FieldDescriptor) -> Descriptor | None:
    """The message of *field*; that of its values, if it is a map."""
    message: Descriptor | None = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return message_of(message.fields_by_name["value"])
    return message


def codes(table: Mapping[type, Any]) -> Iterator[Row]:
    return statuses(table, lambda code: f"`{code.name}`")


# ── config.pbtxt ──


def config_keys() -> Iterator[Row]:
    """Each key of the proto, and what becomes of it in a model and in an ensemble."""
    root = message_class("model_config", "inference.ModelConfig").DESCRIPTOR
    for key in keys(root, config._HONOURED | config._HONOURED_OF_ENSEMBLE):
        yield (
            f"`{key}`",
            *(
                fate(key.split("."), table)
                for table in (config._HONOURED, config._HONOURED_OF_ENSEMBLE)
            ),
        )


def keys(message: Descriptor, honoured: Mapping[str, Any] | None, place: str = "") -> Iterator[str]:
    """The keys of *message*; within a refused one, no further."""
    for field in message.fields:
        name, inner = f"{place}{field.name}", field.message_type
        is_refused = honoured is not None and field.name not in honoured
        within = None if honoured is None or is_refused else honoured[field.name]
        goes_in = inner is not None and not is_refused and not inner.GetOptions().map_entry
        found = [*keys(inner, within, f"{name}.")] if goes_in else []
        yield from found or [name]


def fate(key: list[str], honoured: Mapping[str, Any] | None) -> str:
    """What becomes of *key*, as the page says it."""
    for depth, part in enumerate(key, 1):
        if honoured is not None and part not in honoured:
            return "refused, 501" if part in config._NOT_SERVED else "refused"
        is_told = config.NO_EFFECT.get(".".join(key[:depth]))
        if is_told is not None:
            return "ignored" if is_told else "no effect"
        honoured = None if honoured is None else honoured[part]
    return "served"


def model_parameters() -> Iterator[Row]:
    """Each parameter of a configuration, and where it means something."""
    for name in config._PARAMETERS:
        yield f"`{name}`", "served", "served" if name in OF_IMAGES else "ignored"


# ── the page ──

TABLES: dict[str, Callable[[], Iterator[Row]]] = {
    "method and path": paths,
    "object": objects,
    "query parameter": query_parameters,
    "parameter of a request, an input or an output": v2_parameters_read,
    "media type": media_types,
    "status of V2's and Triton's paths": lambda: http_statuses(http_status.STATUS),
    "status of the container": lambda: http_statuses(refusals.STATUS),
    "status of the endpoint": lambda: http_statuses(
        {error: status for error, (status, _) in refusals.KINDS.items()}
    ),
    "RPC": rpcs,
    "message": messages,
    "code of gRPC": lambda: codes(grpc_status.STATUS),
    "code of gRPC for ModelMesh": lambda: codes(
        {
            error: code
            for error, code in (grpc_status.PLACED | grpc_status.PLACED_UNNAMED).items()
            if code != grpc_status.STATUS[error]
        }
    ),
    "key of config.pbtxt": config_keys,
    "parameter of config.pbtxt": model_parameters,
}
"""What makes the rows, by the first cell of the header. A cell that they do not have is free."""


def listed(page: str) -> dict[str, list[Row]]:
    """The rows of the page's tables, by the first cell of their headers."""
    found: dict[str, list[Row]] = {}
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        header, _, *rows = (
            tuple(map(str.strip, line.strip().strip("|").split("|"))) for line in table.splitlines()
        )
        found.setdefault(header[0], []).extend(rows)
    return found


@pytest.mark.parametrize("kind", TABLES)
def test_the_page_lists_what_is_served(kind: str) -> None:
    """Each row of the code is on the page, as the code has it, and the page has no other."""
    served = {*TABLES[kind]()}
    width = len(next(iter(served)))
    told = [row[:width] for row in listed(PAGE.read_text("utf-8")).get(kind, [])]
    assert {*told} == served, "\n".join(
        ["", *(f"missing: | {' | '.join(row)} |" for row in sorted(served - {*told}))]
        + [f"not served: | {' | '.join(row)} |" for row in sorted({*told} - served)]
    )
    assert len(told) == len(served), "a row is there twice"


def test_the_page_has_no_other_table() -> None:
    """Each table of the page is checked against the code."""
    assert {*listed(PAGE.read_text("utf-8"))} == {*TABLES}
