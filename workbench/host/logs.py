"""The last records of the server's loggers, kept in memory; the command line prints some too."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar, TextIO

from workbench.core import LogSettings

_LOGGERS = ("workbench", "uvicorn.error")
_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogRing(logging.Handler):
    """Keeps the last *capacity* records of the server's loggers as text, as *settings* says.

    Where the process has a stream *printed_to*, warnings and errors are printed there as well,
    unless the code of a model has set up logging, which then prints them.
    """

    printed_to: ClassVar[TextIO | None] = None

    def __init__(
        self, settings: Callable[[], LogSettings] = LogSettings, capacity: int = 1000
    ) -> None:
        super().__init__()
        self._settings = settings
        self._lines: deque[str] = deque(maxlen=capacity)
        self._formatters = {"default": logging.Formatter(_LINE), "ISO8601": _in_utc()}

    def emit(self, record: logging.LogRecord) -> None:
        settings = self._settings()
        if not settings.keeps(record.levelno):
            return
        text = self._formatters[settings.format].format(record)
        self._lines.append(text)
        is_printed = record.levelno >= logging.WARNING and not logging.getLogger().handlers
        if self.printed_to is not None and is_printed:
            with suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
                print(text, file=self.printed_to, flush=True)

    def text(self) -> str:
        """All that is kept, oldest first."""
        return "\n".join(list(self._lines))

    def attach(self) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self)

    def detach(self) -> None:
        """Listen no more; the kept records stay."""
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)


def _in_utc() -> logging.Formatter:
    formatter = logging.Formatter(_LINE, "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    return formatter
