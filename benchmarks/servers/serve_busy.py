"""Ours in a kernel whose main thread is busy: ``python serve_busy.py MODELS PORT COUNTER ALONE_S``.

The main thread runs a pure-Python loop, first *ALONE_S* seconds without any
server, then with one, until it is killed. The file *COUNTER* has two doubles:
the rounds of the loop so far, and the rounds a second while it was alone.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from itertools import count
from pathlib import Path

from workbench import Workbench


def spin(counter: mmap.mmap, until_s: float) -> int:
    """Turn until then, and write down each round; returns how many there were."""
    for rounds in count():
        for number in range(256):  # Python keeps these ready; where it puts others counts for 10 %
            _ = number ^ 85
        struct.pack_into("d", counter, 0, rounds)
        if time.perf_counter() > until_s:
            return rounds
    raise AssertionError


models, port, path, alone_s = sys.argv[1:]
with Path(path).open("r+b") as file, mmap.mmap(file.fileno(), 16) as counter:
    spin(counter, time.perf_counter() + 0.2)
    rounds = spin(counter, time.perf_counter() + float(alone_s))
    struct.pack_into("d", counter, 8, rounds / float(alone_s))
    with Workbench(models, device="cpu", port=int(port), load="all"):
        spin(counter, float("inf"))
