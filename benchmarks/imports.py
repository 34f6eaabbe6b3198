"""How long imports take: ``import workbench``, and ``from workbench import Workbench``.

    python benchmarks/imports.py            measure, and print
    python benchmarks/imports.py --write    and put the table into benchmarks/RESULTS.md

Medians over fresh processes, of seconds of the CPU from after the start of the interpreter.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import report

RUNS = 15
CODE = "import time; begun = time.process_time(); {}; print(time.process_time() - begun)"
IMPORTS = {"import workbench": 0.02, "from workbench import Workbench": 0.6, "import numpy": None}


def measured(statement: str) -> float:
    """The seconds of *statement* in one fresh process."""
    command = [sys.executable, "-c", CODE.format(statement)]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(told.stdout)


def section(_: Path) -> str:
    """All imports in turn, so that a busy machine slows all of them."""
    laps: dict[str, list[float]] = {statement: [] for statement in IMPORTS}
    for _ in range(RUNS):
        for statement in IMPORTS:
            laps[statement].append(measured(statement))
    rows = []
    for statement, target in IMPORTS.items():
        wanted = f"<= {target * 1e3:.0f} ms" if target else "for comparison"
        median = statistics.median(laps[statement])
        rows.append([f"`{statement}`", f"{median * 1e3:.0f} ms", wanted])
    made = f"Made by `python benchmarks/imports.py --write`, {datetime.now(UTC):%Y-%m-%d}."
    heads = ["statement", "CPU time", "target"]
    return "\n\n".join(("## Imports", made, report.markdown(heads, rows)))


if __name__ == "__main__":
    report.publish("imports", section, __doc__)
