"""Notebooks as a real headless kernel runs them, and what their cells put out."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def shipped(name: str) -> Any:
    """The notebook of that *name*."""
    import nbformat  # which takes seconds: not while the tests are collected

    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def run(notebook: Any, folder: Path = NOTEBOOKS, *, env: Mapping[str, str] = os.environ) -> Any:
    """Run *notebook* in *folder* from top to bottom; returns its cells of code.

    Only cells with the tag ``raises-exception`` may fail.
    """
    from nbclient import NotebookClient

    resources = {"metadata": {"path": str(folder)}}
    options = {"kernel_name": "python3", "coalesce_streams": True, "resources": resources}
    NotebookClient(notebook, timeout=250, **options).execute(env=env)
    return code(notebook)


def text(cell: Any, kinds: Iterable[str] = ("text/plain",)) -> str:
    """What *cell* put out, in these *kinds*; an error as IPython shows it."""
    told = []
    for output in cell.outputs:
        assert output.get("name") != "stderr", output.text
        if output.output_type == "error":
            told.append("\n".join(output.traceback))
        elif output.output_type == "stream":
            told.append(output.text)
        else:
            told += [str(output.data[kind]) for kind in kinds if kind in output.data]
    return "\n".join(told)


def whole(cell: Any) -> str:
    """What *cell* put out, HTML and pictures too."""
    return text(cell, ("text/plain", "text/html", "image/png"))


def of(cells: Iterable[Any], beginning: str) -> str:
    """What the cell with that *beginning* put out."""
    (cell,) = [cell for cell in cells if cell.source.startswith(beginning)]
    return whole(cell)
