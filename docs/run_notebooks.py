"""Runs the notebooks and keeps what they put out: ``make notebooks``, after a change to one.

What is kept shows without a kernel, also to readers who do not trust the file: text, HTML and
pictures. Widgets are left out, as they would wait for a kernel for ever, and so are
times of execution and the place of this checkout.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"


def run(path: Path) -> None:
    """Run the notebook *path* in its folder, and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(WIDGET, None)
        if "outputs" in cell:
            cell.outputs = [each for each in cell.outputs if says_something(each)]
    text = nbformat.writes(notebook) + "\n"
    path.write_text(text.replace(f"{NOTEBOOKS}/..", "..").replace(str(NOTEBOOKS.parent), "..."))


def says_something(output: nbformat.NotebookNode) -> bool:
    """Whether there is more to *output* than the empty place where a progress bar was."""
    return "data" not in output or any(output.data.values())


if __name__ == "__main__":
    for each in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(NOTEBOOKS.glob("*.ipynb")):
        print(each.name)  # noqa: T201
        run(each)
