"""The verb of a ``Workbench`` that the benchmark brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.api.workbench import Workbench, example_of, serving_of
from workbench.client.coercion import check_model
from workbench.views.progress import Progress

if TYPE_CHECKING:
    from workbench.annexes.bench.benchmark import Several
    from workbench.annexes.bench.report import Bench


def bench(
    self: Workbench,
    model: str,
    inputs: object = None,
    *,
    clients: Several = (1, 2, 4, 8, 16, 32, 64),
    batches: Several = (),
    seconds: float | str = 1.5,
) -> Bench:
    """Measure how fast *model* is: answers a second, and how long they take.

    Another process sends *inputs*, or an example, over HTTP: from each number of *clients* at a
    time, each of which waits for its answer. *batches*: elements of a request. Each load warms
    up, and is measured for so many *seconds*, or longer if answers take their time.

    Raises ``ModelNotFound``, ``ServerNotRunning``, ``UsageError``, and as ``load`` does.
    """
    from workbench.annexes.bench import benchmark
    from workbench.annexes.bench.target import BenchServer
    from workbench.client.card import check_known

    check_model(model)
    loads, core = benchmark.LoadLevels.of(clients, batches, seconds), serving_of(self).core
    target, name = BenchServer(self.url, self.token), check_known(model, self.names)
    given = example_of(self, model) if inputs is None else inputs
    with Progress() as progress:
        return benchmark.bench(
            target,
            name,
            given,
            loads,
            signature=core.call(core.status.signature, name),
            told=lambda point, share: progress.show(share, point.asked),
        )
