"""A live view of a server in a notebook's output; a picture once the server stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import ipywidgets as widgets
from IPython import display as ipython

from workbench.annex import annexes
from workbench.core import ServerCore
from workbench.core.status.snapshot import ModelStatus
from workbench.dashboard import playground
from workbench.dashboard.controls import Controls, answer_while_busy, setting_words
from workbench.dashboard.feed import Feed
from workbench.dashboard.marks import Marks
from workbench.errors import WorkbenchError
from workbench.events import Entry
from workbench.model import ModelState
from workbench.settings import Settings
from workbench.views import board
from workbench.views.calls import answer_html
from workbench.views.chart import as_image, is_mark, legend, memory_charts
from workbench.views.history import History
from workbench.views.pace import IDLE_S
from workbench.views.progress import in_notebook
from workbench.views.table import CLASSES, IN_FILES, Looks
from workbench.views.text import addresses, cut, status_text
from workbench.views.times import clock_time, show_seconds

_EVENTS = 1000  # of the past that are shown or drawn
_NAME = 60  # characters of an order
_LATE_S = 1.0  # by which a request may be counted after its end
_THREADS = 4  # orders that are carried out at once

_display: Any = ipython.display
_log = logging.getLogger(__name__)


class ShownServer(Protocol):
    """The server that the dashboard shows; settings change and models load here too."""

    @property
    def is_running(self) -> bool: ...
    @property
    def page(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def grpc_urls(self) -> tuple[str, ...]: ...
    @property
    def token(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def evict(self) -> str: ...
    @property
    def keep_alive(self) -> float | None: ...
    @property
    def settings(self) -> Settings: ...


class Dashboard:
    """Shows *server*, whose core is that of *core*, from the first time that it is displayed.

    Raises ``ServerNotRunning``.
    """

    def __init__(self, server: ShownServer, core: Callable[[], ServerCore]) -> None:
        self._server, self._core = server, core
        self._title = addresses(server.url, server.grpc_urls)
        self._history = History()
        self._entries: deque[Entry] = deque(maxlen=_EVENTS)
        self._marked: deque[Entry] = deque(maxlen=_EVENTS)
        self._names: tuple[str, ...] = ()
        self._broken: dict[str, ModelStatus] = {}  # by name, of those that nobody asked for yet
        self._names_until_s = 0.0  # when they are read again, of ``time.monotonic``
        self._snapshot = core().status.counted()
        self._history.add(self._snapshot, core().events.since())
        self._results: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._executor = ThreadPoolExecutor(_THREADS, "workbench-dashboard-order")
        self._handle: Any = None
        self._closed = False
        self._drawing = threading.Lock()
        self._stopped = ""
        self._events_drawn = ""  # as long as there are no new ones
        self._chart_drawn = ""  # as long as there is nothing new in it
        self._rows_drawn: board.ShownRows = {}  # each as long as there is nothing new in it
        self._told: set[str] = set()
        self._feed = Feed(self._mark, self.draw)
        self._controls = Controls(
            self._act, self._adjust, self._choose, self._send, self._feed.wake
        )
        self._marks = Marks(self._feed.wake)
        self._live, self._chart, self._events = (widgets.HTML() for _ in range(3))
        head, models = (widgets.Box([self._live]) for _ in range(2))  # see ``board.LIVE_STYLE``
        head.add_class("wbd-head")
        models.add_class("wbd-models")
        self._note, self._answer, self._failure = (widgets.HTML() for _ in range(3))
        self._panels = widgets.HTML()
        trial = widgets.Accordion([widgets.VBox([self._controls.playground, self._answer])])
        trial.set_title(0, "Send a request to the chosen model")
        trial.selected_index = None
        self._root = widgets.VBox(
            [
                widgets.HTML(board.STYLE + board.LIVE_STYLE), head, self._chart, self._marks.row,
                self._controls.bar,
                self._note, self._failure, models, self._panels, trial, self._events,
            ]
        )  # fmt: skip
        for control in (self._marks.chooser, *self._controls.active):
            answer_while_busy(control)
        self._read_events()

    def __repr__(self) -> str:
        return f"dashboard of {self._title}: {status_text(self._snapshot)}"

    def _ipython_display_(self) -> None:
        if self._closed:
            _display(self._picture(), raw=True)
            return
        if not in_notebook():  # a terminal has no widgets
            print(self)  # noqa: T201
            return
        self.draw()
        bundle = self._picture() | {
            "application/vnd.jupyter.widget-view+json": {
                "version_major": 2, "version_minor": 0, "model_id": self._root.model_id,
            }
        }  # fmt: skip
        self._handle = _display(bundle, raw=True, display_id=True)
        self._feed.start()

    @property
    def is_shown(self) -> bool:
        """True if the dashboard is the output of a cell."""
        return self._handle is not None

    def close(self) -> None:
        """Become a picture of the last state; again: nothing."""
        if self._closed:
            return
        self._closed = True
        self._feed.close()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self.draw()
        if self._handle is not None:
            self._handle.update(self._picture(), raw=True)
        _close(self._root)

    # ── drawing, by one thread at a time ──

    def draw(self, whole: bool = True) -> None:
        """Read the server, and show what changed. A part that fails shows one line.

        Unless *whole*, only what requests change is read: nothing else happened.
        """
        with self._drawing:  # what is displayed again is drawn by the kernel's thread too
            self._draw(whole)

    def _draw(self, whole: bool) -> None:
        self._take_results()
        failure = ""
        if self._server.is_running:
            failure = self._safely(self._read)
        elif not self._stopped:
            self._stopped = f"stopped at {clock_time(time.time())}"
        if whole:
            self._failure.value = self._safely(self._show_controls)
        head = failure or self._safely(self._head_html)
        models = self._safely(partial(self._models_html, rows=self._rows_drawn))
        self._live.value = board.live(head, models)
        self._chart.value = self._safely(self._chart_html)
        self._panels.value = self._safely(self._panels_html)
        self._events.value = self._safely(self._events_html)

    def _mark(self) -> tuple[Hashable, float]:
        core = self._core()
        return (self._server.is_running, core.status.mark), core.status.last_answer_s

    def _read(self) -> str:
        since_s = self._snapshot.at_s - _LATE_S
        self._snapshot = self._core().status.glance(
            board.MODELS,
            chosen=self._controls.chosen,
            since_s=since_s,
            wanted=self._controls.wanted,
        )
        for model in self._snapshot.models:
            self._broken.pop(model.id.name, None)  # what it is now is in the snapshots
        self._stopped = ""
        self._read_events()
        if self._history.add(self._snapshot, self._entries):
            self._chart_drawn = ""
        return ""

    def _read_events(self) -> None:
        cursor = self._entries[-1].number if self._entries else 0
        fresh = self._core().events.since(cursor)
        if fresh:
            self._entries.extend(fresh)
            self._marked.extend(filter(is_mark, fresh))
            self._names_until_s = 0.0
            self._events_drawn = self._chart_drawn = ""

    def _head_html(self, *, live: bool = True) -> str:
        note = self._stopped
        if not live:
            note = note or f"as it was at {clock_time(self._snapshot.at_s)}"
        link = self._server.page if live and self._server.is_running else ""
        names, traffic = len(self._names), self._history.all_traffic
        return board.head(
            self._snapshot, traffic, names=names, link=link, title=self._title, note=note
        )

    def _chart_html(self) -> str:
        if not self._chart_drawn:
            self._chart_drawn = f'<div class="wbd">{"".join(self._charts())}{self._legend()}</div>'
        return self._chart_drawn

    def _charts(self) -> list[str]:
        return list(memory_charts(self._history, self._snapshot, self._marked))

    def _legend(self) -> str:
        return legend(self._history, self._snapshot)

    def _models_html(self, looks: Looks = CLASSES, rows: board.ShownRows | None = None) -> str:
        wanted = self._controls.wanted
        broken = {name: m for name, m in self._broken.items() if wanted in name.casefold()}
        shown = board.with_broken(self._snapshot, broken)
        if wanted:
            found = (m for m in shown.models if wanted in m.id.name.casefold())
            shown = replace(shown, models=tuple(found))
            if not shown.models:
                return board.one_line(f"no model with {wanted!r} in its name was used yet")
        return board.models_table(shown, self._history, self._controls.chosen, looks, rows)

    def _panels_html(self) -> str:
        panels = (annex.panel for annex in annexes() if annex.panel is not None)
        return "".join(panel(self._server) for panel in panels)

    def _events_html(self) -> str:
        if not self._events_drawn:
            self._events_drawn = board.events_list(self._entries)
        return self._events_drawn

    def _show_controls(self) -> str:
        if time.monotonic() >= self._names_until_s:
            names = self._server.names  # lists the folders of the repository
            known, self._names = {*self._names}, names
            fresh = self._core().status.broken([name for name in names if name not in known])
            self._broken = {n: m for n, m in (self._broken | fresh).items() if n in names}
            self._names_until_s = time.monotonic() + IDLE_S
        devices = self._snapshot.devices
        self._controls.show(
            self._names,
            min(device.budget_nbytes for device in devices),
            min(device.device.total_nbytes for device in devices),
            self._server.evict,
            self._server.keep_alive,
            first=self._first,
        )
        self._marks.show(self._marked, self._snapshot.at_s)
        return ""

    @property
    def _first(self) -> str:
        """The model to begin with: one that is loaded, or else one that is not known as broken."""
        models = self._snapshot.models
        failed = {m.id.name for m in models if m.absence is not None and m.absence.failed}
        broken = failed | self._broken.keys()
        loaded = (m.id.name for m in models if m.state is ModelState.READY)
        sound = (name for name in self._names if name not in broken)
        return next(chain(loaded, sound), "")

    def _safely(self, draw: Callable[[], str]) -> str:
        """The result of *draw*; if it fails, a line that says so."""
        try:
            return draw()
        except Exception as error:
            line = f"this part cannot be shown: {type(error).__name__}: {error}"
            if line not in self._told:  # a failure of every half second is logged once
                self._told.add(line)
                _log.exception("the dashboard could not show a part")
            return board.one_line(line)

    def _picture(self) -> dict[str, str]:
        """The last state, for a front end without widgets and for files: HTML and text."""
        draws = (
            lambda: self._head_html(live=False),
            lambda: "".join(as_image(c, "memory in the last minutes") for c in self._charts()),
            lambda: f'<div class="wbd">{self._legend()}</div>',
            lambda: self._models_html(IN_FILES),
            self._panels_html,
            self._events_html,
        )
        parts = [board.STYLE, *map(self._safely, draws)]
        return {"text/html": "".join(parts), "text/plain": repr(self)}

    # ── orders: handlers of widgets pass them on, and return at once ──

    def _act(self, verb: str, model: str) -> None:
        if model:
            self._order(f"{verb} {model}", partial(getattr(self._server, verb), model))

    def _adjust(self, setting: str, value: Any) -> None:
        change = partial(setattr, self._server, setting, value)
        self._order(setting_words(setting, value), change)

    def _choose(self, model: str) -> None:
        def fill() -> None:
            text = playground.example(self._core().status.signature(model))
            self._later(lambda: self._controls.fill(text))

        self._order(f"there is no example request for {model}", fill, quiet=True)

    def _send(self, model: str, body: str) -> None:
        def send() -> None:
            url, token = self._server.url, self._server.token
            answer = playground.send(url, token, model, body)
            settings = self._core().settings
            html = answer_html(settings, url, model, body, answer, token=bool(token))
            self._later(lambda: setattr(self._answer, "value", html))

        if model:
            self._order(f"request to {model}", send)

    def _order(self, name: str, work: Callable[[], object], *, quiet: bool = False) -> None:
        """Have *work* done on another thread, and show how it ended; if *quiet*, only a failure."""
        name = cut(name, _NAME)

        def run() -> None:
            if not quiet:
                self._tell(f"{name}: under way")
            begin_s = time.perf_counter()
            try:
                work()
            except WorkbenchError as error:
                self._tell(f"{name}: {error}")
            except Exception as error:
                _log.exception("an order of the dashboard failed")
                self._tell(f"{name}: {type(error).__name__}: {error}")
            else:
                if not quiet:
                    self._tell(f"{name}: done in {show_seconds(time.perf_counter() - begin_s)}")

        if not self._closed:
            self._executor.submit(run)

    def _tell(self, line: str) -> None:
        self._later(lambda: setattr(self._note, "value", board.one_line(line)))

    def _later(self, result: Callable[[], None]) -> None:
        """Show a *result* by the thread that draws, which alone writes to widgets."""
        self._results.put(result)
        self._feed.wake()

    def _take_results(self) -> None:
        while True:
            try:
                self._results.get_nowait()()
            except Empty:
                return


def _close(widget: Any) -> None:
    for child in getattr(widget, "children", ()):
        _close(child)
    widget.close()
