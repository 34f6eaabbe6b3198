"""Notebooks that tests write, open in JupyterLab and run there."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from browser.chromium import Lab

RUN_ALL = "() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }"


def write(path: Path, cells: Sequence[str]) -> None:
    """Write a notebook of code *cells* without outputs."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = {
        "cells": [
            {
                "cell_type": "code", "execution_count": None, "id": f"cell-{number}",
                "metadata": {}, "outputs": [], "source": source,
            }
            for number, source in enumerate(cells)
        ],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }  # fmt: skip
    path.write_text(json.dumps(content))


@contextmanager
def opened(context: Any, lab: Lab, name: str, width: int = 900) -> Iterator[Any]:
    """A page with the notebook *name*, once its kernel is ready.

    After a failure it stays open: the report says what it shows.
    """
    page = context.new_page()
    page.set_viewport_size({"width": width, "height": 1100})
    page.goto(f"{lab.url}/doc/tree/{name}?token={lab.token}", wait_until="domcontentloaded")
    page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell")
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget?.context?.sessionContext?.isReady"
    )
    yield page
    page.close()
