"""The last records of the server's loggers, kept in memory; the command line prints some too."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from typing import ClassVar, TextIO

_LOGGERS = ("workbench", "uvicorn.error")
_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogRing(logging.Handler):
    """Keeps the last *capacity* records of the server's loggers, from INFO on, as text.

    Where the process has a stream *printed_to*, warnings and errors are printed there as well,
    unless the code of a model has set up logging, which then prints them.
    """

    printed_to: ClassVar[TextIO | None] = None

    def __init__(self, capacity: int = 1000) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(logging.Formatter(_LINE))
        self._lines: deque[str] = deque(maxlen=capacity)

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
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
