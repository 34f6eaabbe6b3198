"""The quickstart notebook, run on a real headless kernel."""

from typing import Any

import pytest
from headless import code, of, run, shipped


@pytest.fixture(scope="module")
def outputs() -> list[Any]:
    """The cells of the notebook, with what they put out."""
    return run(shipped("quickstart"))


def test_start(outputs: list[Any]) -> None:
    """The first cell shows the server's address, and that nothing is loaded."""
    assert "http://127.0.0.1:" in of(outputs, "%load_ext")
    assert "0 in memory" in of(outputs, "%load_ext")


def test_over_http(outputs: list[Any]) -> None:
    """A digit is read rightly over HTTP."""
    told = of(outputs, "import json").split()
    assert told[3] == told[-1]


def test_in_python(outputs: list[Any]) -> None:
    """The held-out digits are read well in Python."""
    assert float(of(outputs, "probabilities").split("%")[0]) > 96


def test_function(outputs: list[Any]) -> None:
    """The function's answers are numbers."""
    assert of(outputs, "@wb.model").startswith("array([")


def test_evictions(outputs: list[Any]) -> None:
    """Somebody is evicted, with the reason, and the picture is drawn."""
    told = of(outputs, "wb = %workbench\n")
    assert "least recently used, to make room for ink:1" in told
    assert "iVBORw0KGgo" in of(outputs, "wb.plot_memory")  # how a PNG begins, in base64


def test_the_dashboard(outputs: list[Any]) -> None:
    """Live while the cells ran, it is a picture after the stop; the committed file has one too."""
    for cells in (outputs, code(shipped("quickstart"))):
        told = of(cells, "%workbench dashboard")
        assert "stopped at " in told
        assert "evicted ink:1" in told
        assert "data:image/svg+xml;base64," in told


def test_end(outputs: list[Any]) -> None:
    """A pinned model has its star, and the last cell stops the server."""
    assert "digits *" in of(outputs, "wb.pin")
    assert of(outputs, "%workbench stop") == "stopped\n"
