"""Interrupts of the main thread, at any step and once something has begun."""

import re
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_FRAIL = re.compile(r"/(asyncio|logging)/")


def interrupted(call: Callable[[], object], step: int) -> bool:
    """Do *call*, interrupted at one of its steps; whether it took that many.

    A step is a line of Python, or the end of a function, of Python or of C: of all code but that
    of asyncio and logging, whose loops and locks outlive no such interrupt.
    """
    left = [step]

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        if not _FRAIL.search(frame.f_code.co_filename):
            left[0] -= event in ("line", "return", "c_return")
        if not left[0]:
            left[0] = -1
            raise KeyboardInterrupt
        return trace

    traced = sys.gettrace()
    sys.settrace(trace)
    sys.setprofile(trace)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
        sys.settrace(traced)
    return left[0] < 0


def interrupt_soon(begun: threading.Event) -> None:
    """Interrupt the main thread once *begun* is set."""
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        begun.wait(30)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
