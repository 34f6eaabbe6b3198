"""What the server's threads have to say, kept for whoever asks; printed by nobody."""

from __future__ import annotations

import logging
from collections import deque

_LOGGERS = ("workbench", "uvicorn.error")


class LogRing(logging.Handler):
    """Keeps the last *capacity* records of the server's loggers as text."""

    def __init__(self, capacity: int = 1000) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._lines: deque[str] = deque(maxlen=capacity)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep *record*."""
        self._lines.append(self.format(record))

    def text(self) -> str:
        """All that is kept, oldest first."""
        return "\n".join(list(self._lines))

    def attach(self) -> None:
        """Listen to the server's loggers."""
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self)

    def detach(self) -> None:
        """Listen no more; what was kept stays."""
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)
