"""The parser of JSON; tests/host/test_without_httptools.py has a server without simdjson."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement


def test_simdjson_is_required_where_it_has_wheels() -> None:
    """So that no compiler is needed to install the workbench."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    required = map(Requirement, project["dependencies"])
    (marker,) = (each.marker for each in required if each.name == "pysimdjson")
    assert marker is not None
    versions = ("3.11", "3.13", "3.14", "3.15")
    found = [marker.evaluate({"python_version": version}) for version in versions]
    assert found == [True, True, False, False]
