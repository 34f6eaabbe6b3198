"""Short turns on the processor, for the thread that answers the network."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import threading

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # Linux's numbers of the system call
_SLICE_NS = 100_000  # the shortest that Linux grants; by default a turn lasts 3 ms


def ask_for_short_slices() -> None:
    """Let the calling thread's turns be short, so that it soon has one beside a busy cell.

    Linux prefers a waking thread of short turns to a running one of long ones,
    without more of the processor in all. Needs no rights; systems that know
    nothing of it (others, and Linux before 6.12) are left as they are.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if not sys.platform.startswith("linux") or number is None:
        return
    if os.sched_getscheduler(0) != os.SCHED_OTHER:  # somebody chose another policy
        return
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    # sched_attr: its size, policy, flags, niceness, priority; the slice, where other policies
    # have a runtime; their deadline and period
    attributes = struct.pack("<IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, _SLICE_NS, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, attributes, 0)
