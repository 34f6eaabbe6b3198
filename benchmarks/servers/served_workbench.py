"""Ours: ``python served_workbench.py FOLDER PORT THING``; in batches as *batch*, else as *one*."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np

from workbench import Workbench

sys.path.insert(0, str(Path(__file__).parents[1]))
from served import load

folder, port, thing = sys.argv[1:]
loaded, rows = load(Path(folder), thing), np.load(Path(folder) / "rows.npy")
with Workbench(device="cpu", port=int(port), token="off") as wb:
    for name, batch in (("one", 0), ("batch", 32)):
        wb.serve(loaded, name, example=rows[:2], batch=batch)
    threading.Event().wait()
