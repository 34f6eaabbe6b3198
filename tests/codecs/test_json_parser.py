"""The parser of JSON where simdjson is not installed, as on Python 3.14."""

import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

SERVE = """
import sys
sys.modules["simdjson"] = None  # to import it fails
import httpx
from workbench import Workbench
with Workbench(None, device="cpu", port=0) as wb:
    wb.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])}, name="f")(lambda x: 2 * x)
    x = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2.5]}
    answer = httpx.post(f"{wb.url}/v2/models/f/infer", json={"inputs": [x]}, timeout=60)
    print(answer.json()["outputs"][0]["data"])
"""


def test_a_server_without_simdjson() -> None:
    """It answers; nothing else imports simdjson."""
    command = [sys.executable, "-c", SERVE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[2.0, 5.0]"


def test_simdjson_is_required_where_it_has_wheels() -> None:
    """So that no compiler is needed to install the workbench."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    required = map(Requirement, project["dependencies"])
    (marker,) = (each.marker for each in required if each.name == "pysimdjson")
    assert marker is not None
    versions = ("3.11", "3.13", "3.14", "3.15")
    found = [marker.evaluate({"python_version": version}) for version in versions]
    assert found == [True, True, False, False]
