"""Times and durations as people read them."""

from __future__ import annotations

import time


def show_seconds(seconds: float) -> str:
    """Seconds as people read them: ``"1.2 ms"``; a dash for none."""
    if not seconds:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def show_age(seconds: float) -> str:
    """How long ago, roughly: ``"12 s"``, ``"3 min"``, ``"2 h"``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.0f} h"


def clock_time(at_s: float) -> str:
    """Local time of day, of Unix seconds."""
    return time.strftime("%H:%M:%S", time.localtime(at_s))
