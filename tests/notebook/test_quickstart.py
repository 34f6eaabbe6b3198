"""The quickstart notebook, run on a real headless kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture(scope="module")
def outputs() -> dict[str, Any]:
    """What each cell of the notebook put out, by the beginning of its source."""
    import nbformat  # which takes seconds: not while the tests are collected
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOKS / "quickstart.ipynb", as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    return {
        cell.source: "\n".join(_texts(cell.outputs))
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def _texts(outputs: list[Any]) -> list[str]:
    texts = []
    for output in outputs:
        assert output.output_type != "error", output.traceback
        assert output.get("name") != "stderr", output.text
        texts.append(output.get("text") or "".join(map(str, output.get("data", {}).values())))
    return texts


def of(outputs: dict[str, Any], beginning: str) -> str:
    (text,) = [text for source, text in outputs.items() if source.startswith(beginning)]
    return str(text)


def test_start(outputs: dict[str, Any]) -> None:
    """The first cell shows the server's address, and that nothing is loaded."""
    assert "http://127.0.0.1:" in of(outputs, "%load_ext")
    assert "0 in memory" in of(outputs, "%load_ext")


def test_over_http(outputs: dict[str, Any]) -> None:
    """A digit is read rightly over HTTP."""
    told = of(outputs, "import json").split()
    assert told[3] == told[-1]


def test_in_python(outputs: dict[str, Any]) -> None:
    """The held-out digits are read well in Python."""
    assert float(of(outputs, "probabilities").split("%")[0]) > 96


def test_function(outputs: dict[str, Any]) -> None:
    """The function's answers are numbers."""
    assert of(outputs, "@wb.model").startswith("array([")


def test_evictions(outputs: dict[str, Any]) -> None:
    """Somebody is evicted, with the reason, and the picture is drawn."""
    told = of(outputs, "wb = %workbench\n")
    assert "least recently used, to make room for ink:1" in told
    assert "iVBORw0KGgo" in of(outputs, "wb.plot_memory")  # how a PNG begins, in base64


def test_end(outputs: dict[str, Any]) -> None:
    """A pinned model has its star, and the last cell stops the server."""
    assert "digits *" in of(outputs, "wb.pin")
    assert of(outputs, "%workbench stop") == "stopped\n"
