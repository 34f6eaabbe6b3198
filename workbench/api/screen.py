"""The dashboards of a workbench: one is live at a time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.dashboard.dashboard import Dashboard


class Screen:
    """Holds the live dashboard, if there is one."""

    def __init__(self) -> None:
        self._live: Dashboard | None = None
        self._changing = threading.Lock()

    def show(self, dashboard: Dashboard) -> None:
        """Make *dashboard* the live one; the one before becomes a picture."""
        with self._changing:
            before, self._live = self._live, dashboard
        if before is not None:
            before.close()

    def draw(self) -> None:
        """Draw the live dashboard once more, while there is something to see."""
        with self._changing:
            dashboard = self._live
        if dashboard is not None:
            dashboard.draw()

    def close(self) -> Dashboard | None:
        """Make the live dashboard a picture of its last state, and return it."""
        with self._changing:
            dashboard, self._live = self._live, None
        if dashboard is not None:
            dashboard.close()
        return dashboard
