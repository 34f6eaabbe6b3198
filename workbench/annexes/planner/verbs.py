"""The verbs of a ``Workbench`` that the planner brings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.api.workbench import Workbench, serving_of
from workbench.arguments import path_of
from workbench.errors import UsageError
from workbench.views.progress import Progress

if TYPE_CHECKING:
    from workbench.annexes.planner.plan import Plan
    from workbench.annexes.planner.trace import Trace


def _trace(self: Workbench) -> Trace:
    """The last requests that were answered, at most 50,000: when, which model, how long.

    ``wb.trace.save("trace.csv")`` keeps them for ``wb.plan("trace.csv")``.
    """
    from workbench.annexes.planner.trace import Trace, TraceRequest

    return Trace.of(
        TraceRequest(at_s - seconds, model, seconds)
        for at_s, model, _nbytes, seconds in serving_of(self).core.status.trace()
    )


trace = property(_trace)


def plan(
    self: Workbench,
    trace: Trace | str | Path | None = None,
    *,
    warm: float | str = 0.99,
    evict: Sequence[str] | str = ("cost",),
) -> Plan:
    """How much memory the requests of *trace* need, by the server's own rules.

    No model is loaded or run. *trace* are this server's last requests, or those of a file,
    saved by ``wb.trace.save`` or an access log as CSV. The goal is a share of *warm* requests,
    such as ``0.99`` or ``"99%"``. *evict*: policies to compare.

    Raises ``UsageError`` for a trace without requests for known models, and ``SettingError``.
    """
    from workbench.annexes.planner.costs import costs_of, pinned_of
    from workbench.annexes.planner.plan import Plan
    from workbench.annexes.planner.trace import Trace

    serving = serving_of(self)
    listed = evict.split(",") if isinstance(evict, str) else evict
    policies = tuple(listed) if isinstance(listed, Iterable) else (listed,)
    asked = _trace(self) if trace is None else trace
    if not isinstance(asked, Trace):
        asked = Trace.read(path_of("trace", asked))
    costs = serving.core.call(costs_of, serving.core, asked)
    known = Trace.of(request for request in asked if request.model in costs)
    with Progress() as progress:
        return Plan(
            known,
            costs,
            serving.budget_nbytes,
            self.settings.evict,
            policies,
            _share(warm),
            parts=len(self.snapshot().devices) if self.is_running else 1,
            keep_alive_s=math.inf if self.keep_alive is None else self.keep_alive,
            wait_s=self.settings.wait,
            max_waiting=self.settings.max_waiting,
            pinned=pinned_of(serving.core, costs) if self.is_running else (),
            unknown=len(asked) - len(known),
            progress=progress.show,
            set_budget=partial(setattr, self, "budget"),
        )


def _share(warm: float | str) -> float:
    """As people write it: ``0.99`` or ``"99%"``. Raises ``UsageError``."""
    try:
        percent = str(warm).strip().removesuffix("%")
        return float(percent) / (100 if percent != str(warm).strip() else 1)
    except ValueError:
        raise UsageError(f"warm is a share, such as 99% or 0.99, not {warm!r}") from None
