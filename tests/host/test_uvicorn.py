"""What the host relies on in uvicorn, which it subclasses: a version that changes it is not ours.

Where one of these fails, read the changes of that version, mend ``host/protocol.py`` and
``host/connection.py``, and move the bound in pyproject.toml.
"""

import ast
import inspect
import textwrap
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http import h11_impl, httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import Server, ServerState

from workbench.host.connection import ShortCutProtocol, _Cycle
from workbench.host.protocol import Protocol

PYPROJECT = Path(__file__).parent.parent.parent / "pyproject.toml"
PROTOCOLS = {"h11": h11_impl.H11Protocol, "httptools": httptools_impl.HttpToolsProtocol}
# What both protocol classes have, and we call or override; with what we give and are given.
METHODS = {
    "connection_made": "(self, transport)",
    "connection_lost": "(self, exc)",
    "eof_received": "(self)",
    "data_received": "(self, data)",
    "send_400_response": "(self, msg)",
    "on_response_complete": "(self)",
    "shutdown": "(self)",
    "pause_writing": "(self)",
    "resume_writing": "(self)",
    "timeout_keep_alive_handler": "(self)",
    "_unset_keepalive_if_required": "(self)",
}
HTTPTOOLS_METHODS = {
    "on_message_begin": "(self)",
    "on_url": "(self, url)",
    "on_header": "(self, name, value)",
    "on_headers_complete": "(self)",
    "on_body": "(self, body)",
    "on_message_complete": "(self)",
    "_start_asgi_task": "(self, cycle, app)",
}
ATTRIBUTES = {
    "config", "connections", "cycle", "flow", "headers", "loop", "server", "server_state", "tasks",
    "timeout_keep_alive", "timeout_keep_alive_task", "transport",
}  # fmt: skip
HTTPTOOLS_ATTRIBUTES = {"expect_100_continue", "parser", "pipeline", "url"}
STATE = {"connections", "default_headers", "tasks", "total_requests"}
# What uvicorn asks of the cycle that stands in for its own, in the class and out of it.
CYCLE = {
    "disconnected", "keep_alive", "message_event", "more_body", "response_complete",
    "response_started",
}  # fmt: skip


def written(method: Any) -> str:
    """The parameters of *method*, without their types."""
    parameters = inspect.signature(method).parameters.values()
    return f"({', '.join(str(p.replace(annotation=p.empty, default=p.empty)) for p in parameters)})"


def attributes(kind: type, of: str = "self") -> set[str]:
    """The names that the methods of *kind* use of what they call *of*."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == of
    }


def test_the_bound() -> None:
    """The next minor version of uvicorn may change what is subclassed, so it is not allowed yet."""
    lines = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]["dependencies"]
    (uvicorns,) = (r for line in lines if (r := Requirement(line)).name == "uvicorn")
    assert version("uvicorn") in uvicorns.specifier
    assert any(each.operator == "<" for each in uvicorns.specifier)
    assert "999" not in uvicorns.specifier


@pytest.mark.parametrize("name", PROTOCOLS)
def test_methods(name: str) -> None:
    """The methods that are called or overridden are there, with the parameters that are known."""
    kind = PROTOCOLS[name]
    methods = METHODS | (HTTPTOOLS_METHODS if name == "httptools" else {})
    assert {each: written(getattr(kind, each)) for each in methods} == methods


def test_overrides() -> None:
    """Whatever is defined here under a name of uvicorn's is one of those methods."""
    theirs = set(dir(httptools_impl.HttpToolsProtocol)) - set(dir(object))
    ours = {name for kind in (Protocol, ShortCutProtocol) for name in vars(kind)}
    assert {name for name in ours & theirs if not name.startswith("__")} <= (
        METHODS.keys() | HTTPTOOLS_METHODS.keys() | {"refuse"}
    )


@pytest.mark.parametrize("name", PROTOCOLS)
def test_attributes(name: str) -> None:
    """The attributes that are read or set are uvicorn's own."""
    expected = ATTRIBUTES | (HTTPTOOLS_ATTRIBUTES if name == "httptools" else set())
    assert attributes(PROTOCOLS[name]) >= expected


def test_names_of_our_own() -> None:
    """No attribute that is added here is one that uvicorn has for something else."""
    theirs = attributes(httptools_impl.HttpToolsProtocol)
    ours = attributes(Protocol) | attributes(ShortCutProtocol)
    known = METHODS.keys() | HTTPTOOLS_METHODS.keys() | ATTRIBUTES | HTTPTOOLS_ATTRIBUTES
    assert ours & theirs <= known


def test_cycles() -> None:
    """What the protocol asks of the cycle is what the one of our own has."""
    asked = attributes(httptools_impl.HttpToolsProtocol, "self.cycle")
    assert asked - {"body"} <= CYCLE  # a body is added only to a cycle of uvicorn's
    assert {name for name in CYCLE if not hasattr(_Cycle(), name)} == set()
    assert attributes(httptools_impl.RequestResponseCycle) >= CYCLE


def test_the_flow() -> None:
    """Reading is paused and resumed, and whether writing is paused is known."""
    methods = ("pause_reading", "resume_reading", "pause_writing", "resume_writing")
    assert [written(getattr(FlowControl, each)) for each in methods] == ["(self)"] * 4
    assert attributes(FlowControl) >= {"write_paused", "read_paused"}


def test_the_server() -> None:
    """The state that connections share, and the parts of a server that are overridden."""
    assert {name for name in STATE if not hasattr(ServerState(), name)} == set()
    assert {"startup", "main_loop", "shutdown", "serve"} <= set(dir(Server))
    assert {"servers", "server_state", "should_exit"} <= attributes(Server)
    assert {"http", "lifespan", "ws", "timeout_keep_alive"} <= set(
        inspect.signature(uvicorn.Config).parameters
    )
