"""How much memory the requests need, and how fast a model is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex

from workbench.api.reading import Reading
from workbench.arguments import path_of
from workbench.asking.given import check_model
from workbench.errors import UsageError
from workbench.seconds import parse_seconds
from workbench.views.progress import Progress

if TYPE_CHECKING:
    from workbench.api.memory_plan import MemoryPlan
    from workbench.bench.report import Bench
    from workbench.bench.sweep import Several
    from workbench.bench.tuning import Tuning
    from workbench.planner import Trace


class Measuring(Reading):
    """Records requests, replays them, and measures models."""

    @property
    def trace(self) -> Trace:
        """The last requests that were answered, at most 50,000: when, which model, how large.

        ``wb.trace.save("trace.npz")`` keeps them; ``Trace.load`` reads them again.
        """
        from workbench.api.memory_plan import recorded

        return recorded(self._core)

    def plan(
        self,
        trace: Trace | str | Path | None = None,
        *,
        warm: float | str = 0.99,
        p99: str | float | None = None,
        evict: Sequence[str] | str = ("cost",),
    ) -> MemoryPlan:
        """How much memory the requests of *trace* need, by the server's own rules.

        No model is loaded or run. *trace* are this server's last requests, or those of a file,
        saved by ``wb.trace.save`` or an access log as CSV. The goal is a share of *warm* requests,
        such as ``0.99`` or ``"99%"``, or a *p99* of the wait for loads, such as ``"200ms"``.
        *evict*: policies to compare.

        Raises ``UsageError`` for a trace without requests for known models, and ``SettingError``.
        """
        from workbench.api.memory_plan import MemoryPlan, as_named_here, costs_of, pinned_of
        from workbench.planner import Goal, Trace, read_trace

        goal = Goal.of(warm, p99)
        listed = evict.split(",") if isinstance(evict, str) else evict
        policies = tuple(listed) if isinstance(listed, Iterable) else (listed,)
        asked = self.trace if trace is None else trace
        if not isinstance(asked, Trace):
            asked = read_trace(path_of("trace", asked))
        endpoint = self._serving.endpoint
        targets = endpoint.targets if endpoint is not None else {}
        asked = self._core.call(as_named_here, self._core, asked, targets)
        costs = self._core.call(costs_of, self._core, asked)
        known = asked.only(costs)
        with Progress() as progress:
            return MemoryPlan(
                known,
                costs,
                self._serving.budget_nbytes,
                self.settings.evict,
                policies,
                goal,
                parts=len(self.snapshot().devices) if self.is_running else 1,
                keep_alive_s=math.inf if self.keep_alive is None else self.keep_alive,
                wait_s=self.settings.wait,
                max_waiting=self.settings.max_waiting,
                pinned=pinned_of(self._core, costs) if self.is_running else (),
                unknown=len(asked) - len(known),
                progress=progress.show,
                set_budget=partial(setattr, self, "budget"),
            )

    def bench(
        self,
        model: str,
        inputs: object = None,
        *,
        clients: Several[int] = (1, 2, 4, 8, 16, 32, 64),
        rates: Several[float] = (),
        batches: Several[int] = (),
        batching: Several[bool] = (),
        instances: Several[int] = (),
        threads: Several[int] = (),
        wire: str = "http",
        seconds: float | str = 0.5,
    ) -> Bench:
        """Measure how fast *model* is: answers a second, and how long they take.

        Another process sends *inputs*, or an example, over HTTP: from each number of *clients* at a
        time, each of which waits for its answer; then at each of *rates*, in requests a second,
        where latency counts from the time at which a request was due. Each load warms up, and goes
        on until the figures of three periods of so many *seconds* agree, or for ten of them.

        *batches*: elements of a request. *batching*, *instances* (runs at once) and *threads* (of a
        run) are tried in all combinations, by loading the model with them; other requests meet
        that too. At the end its own configuration is loaded again. With ``wire="python"`` threads
        of this process call ``infer``, without the wire.

        Raises ``ModelNotFound``, ``ServerNotRunning``, ``UsageError``, and as ``load`` does.
        """
        from workbench.asking.connection import connect  # httpx takes its time
        from workbench.bench.benchmark import bench_shown
        from workbench.bench.sweep import sweep_of

        check_model(model)
        if wire not in ("http", "python"):
            raise UsageError(f"wire: {wire!r} is neither 'http' nor 'python'")
        inputs = self._example(model) if inputs is None else inputs
        sweep = sweep_of(
            clients=clients,
            rates=rates,
            batches=batches,
            batching=batching,
            instances=instances,
            threads=threads,
            inputs=inputs,
            seconds=seconds,
        )
        infer = partial(self.infer, model) if wire == "python" else None
        return bench_shown(connect(self.url, token=self.token), model, sweep, infer)

    def tune(
        self,
        model: str,
        inputs: object = None,
        *,
        p99: str | float,
        clients: Several[int] = (1, 2, 4, 8, 16, 32, 64),
        batch: int | None = None,
        seconds: float | str = 0.5,
    ) -> Tuning:
        """Find out with which configuration *model* serves most within a *p99*, such as ``"20ms"``.

        Tries dynamic batching, instances and threads as ``bench`` measures them, which takes a
        minute or two, and writes the ``config.pbtxt`` of the best, with the figures as comments.
        The file that was there stays beside it as ``config.pbtxt.before``. Nothing is written if
        the configuration is the best already, or the model has no folder: ``config`` has the text.

        Raises as ``bench`` does, and ``SettingError`` for another *p99*.
        """
        from workbench.asking.connection import connect
        from workbench.bench.sweep import sweep_of
        from workbench.bench.tuning import tune_shown

        check_model(model)
        if batch is not None and not isinstance(batch, SupportsIndex):
            raise UsageError(f"batch is a number of elements, such as 8, not {batch!r}")
        batches = () if batch is None else (batch,)
        inputs = self._example(model) if inputs is None else inputs
        sweep = sweep_of(clients=clients, batches=batches, inputs=inputs, seconds=seconds)
        p99_s = parse_seconds(p99, "p99")
        connection = connect(self.url, token=self.token)
        return tune_shown(connection, model, p99_s, sweep, self.settings.repository)
