"""The CUDA driver is loaded in one place."""

import ast
from pathlib import Path

import workbench

PACKAGE = Path(workbench.__file__).parent


def loads_a_library(path: Path) -> bool:
    """Whether the module at *path* loads a library by name.

    ``CDLL(None)`` is the process, and the C library is in each.
    """
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return any(
        ast.unparse(call.func).split(".")[-1] in {"CDLL", "LoadLibrary", "PyDLL", "find_library"}
        and [ast.unparse(argument) for argument in call.args] not in (["None"], ["'libc.so.6'"])
        for call in calls
    )


def test_one_module_loads_libcuda() -> None:
    """No other module loads a library through ctypes, so none loads libcuda or libcudart."""
    found = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if loads_a_library(path)]
    assert found == [Path("cuda_driver.py")]
