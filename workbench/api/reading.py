"""What a workbench shows: memory, events, the dashboard."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from workbench.api.models import Models
from workbench.repository import taken_as
from workbench.settings import Folders
from workbench.spelling import no_folder
from workbench.views.html import status_html
from workbench.views.objects import EventList, Status
from workbench.views.text import addresses, models_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.dashboard.dashboard import Dashboard


class Reading(Models):
    """Shows what the server does; one dashboard is live at a time."""

    def __init__(self, repository: Folders = None, **settings: Any) -> None:
        super().__init__(repository, **settings)
        self._dashboard: Dashboard | None = None
        self._drawing = threading.Lock()  # of the dashboard

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop the server and free all its memory; it may be called twice.

        New requests are refused at once; running ones have *timeout_s* to finish, by default the
        setting *exit_timeout*. An interrupt ends that wait. A dashboard becomes a picture of its
        last state.
        """
        with self._drawing:
            dashboard = self._dashboard
        if dashboard is not None:
            dashboard.draw()  # while there is something to see
        super().stop(timeout_s)
        self.close_dashboard()

    def snapshot(self) -> Status:
        """The device, the books and the models in memory, now. Raises ``ServerNotRunning``."""
        return Status.of(self._core.call(self._core.snapshot))

    @property
    def events(self) -> EventList:
        """What happened so far, oldest first."""
        return EventList(self._core.events.since(0))

    def wait_for_events(self, after: int, timeout_s: float) -> EventList:
        """The events numbered above *after*, waiting up to *timeout_s* for there to be one."""
        return EventList(self._core.events.wait(after, timeout_s))

    def dashboard(self) -> Dashboard:
        """Live memory, models and events with their controls, as the output of a notebook's cell.

        One is live at a time: an older one becomes a picture, as all do when the server stops.
        Raises ``ServerNotRunning``.
        """
        from workbench.dashboard.dashboard import Dashboard  # ipywidgets takes its time

        dashboard = Dashboard(self, lambda: self._core)
        with self._drawing:
            before, self._dashboard = self._dashboard, dashboard
        if before is not None:
            before.close()
        return dashboard

    def close_dashboard(self) -> Dashboard | None:
        """Make the live dashboard a picture of its last state, which files can keep.

        Returns it, ``None`` if there is none. The server is not touched.
        """
        with self._drawing:
            dashboard, self._dashboard = self._dashboard, None
        if dashboard is not None:
            dashboard.close()
        return dashboard

    def plot_memory(self) -> Figure:
        """A figure of the memory over time: who held it, the budget, each eviction."""
        now_s = time.time()
        from workbench.views.figures import memory_figure

        numbers = {}
        if self.is_running:
            models = self._core.call(self._core.counted).models
            numbers = {model.id: model.load_statistics.number for model in models}
        return memory_figure(self.events, self._serving.budget_nbytes, now_s, numbers)

    def __repr__(self) -> str:
        if not self.is_running:
            folders = ", ".join(map(str, self.settings.repository)) or "no repository"
            return f"workbench on {folders}: not running"
        return f"{self._title()}{self.snapshot()!r}"

    def _repr_html_(self) -> str:
        if not self.is_running:
            return f"<b>{self!r}</b>"
        return status_html(self.snapshot(), self._title(), self.page)

    def _title(self) -> str:
        places = addresses(self.link, self.grpc_urls)
        told = f"workbench {places} with {models_count(len(self.names))}"
        if taken := taken_as(self.settings.repository, self.settings.name):
            told += f" ({taken})"
        for folder in self.settings.repository:
            if wrong := no_folder(folder):
                told += f" (the repository folder {str(folder)!r} {wrong})"
        return f"{told}: "
