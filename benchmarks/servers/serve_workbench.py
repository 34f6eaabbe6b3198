"""Ours: ``python serve_workbench.py MODELS PORT``."""

from __future__ import annotations

import sys
import threading

from workbench import Workbench

models, port = sys.argv[1:]
with Workbench(models, device="cpu", port=int(port), load="all"):
    threading.Event().wait()
