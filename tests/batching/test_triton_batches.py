"""The cases of Triton's own suite of its dynamic batcher, L0_batcher, on the queue with a clock."""

import pytest

from workbench.batching import BatchQueue, Waiting
from workbench.model import Batching

_DELAY_S = 10.0
_LATE_S = 1.0  # when requests come of which the suite sends the last ones later

# the suite's name for the case; the requests, as rows and shape, in the order of their coming;
# the batches that run at once, as rows; those that run when the delay of their first is over
_AS_THEY_COME = [
    ("static_batch_preferred", "2 6", [[2], [6]], []),
    ("static_batch_lt_any_preferred", "1", [], [[1]]),
    ("static_batch_not_preferred", "3", [], [[3]]),
    ("static_batch_gt_max_preferred", "7", [[7]], []),
    ("multi_batch_different_shape", "1x 1y", [[1]], [[1]]),
    ("multi_batch_not_preferred", "1 3", [], [[1, 3]]),
    ("multi_batch_not_preferred_different_shape", "1x 3x 1y", [[1, 3]], [[1]]),
    ("multi_batch_preferred_different_shape", "1x 3x 1y 5y", [[1, 3], [1, 5]], []),
    ("multi_batch_gt_max_preferred", "3 7", [[3], [7]], []),
    ("multi_batch_sum_gt_max_preferred", "3 4", [[3]], [[4]]),
    ("multi_same_output", "1 1", [[1, 1]], []),
]

_WAITING_ALREADY = [
    ("multi_batch_delayed_sum_gt_max_preferred", "3 4", [[3]], [[4]]),
    ("multi_batch_delayed_preferred_different_shape", "3x 1x 1y 5y", [[3, 1], [1, 5]], []),
    ("multi_batch_use_biggest_preferred", "1 1 1 1 1 1", [[1] * 6], []),
    ("multi_batch_use_best_preferred", "1 1 1", [[1, 1]], [[1]]),
]

_PREFERRED_ONLY = [
    ("preferred_batch_only_aligned", "1 1 1 1", [[1] * 4]),
    ("preferred_batch_only_unaligned", "1 1 1 1 1", [[1] * 4, [1]]),
    ("preferred_batch_only_use_biggest_preferred", "1 1 1 1 1 1 1", [[1] * 6, [1]]),
    ("preferred_batch_only_use_no_preferred_size", "1 1 1", [[1] * 3]),
]


def _queue(*preferred: int, delay_s: float = _DELAY_S) -> BatchQueue[Waiting]:
    return BatchQueue(Batching(preferred, delay_s), 8)


def _add(queue: BatchQueue[Waiting], request: str, now_s: float = 0.0) -> None:
    queue.add(Waiting(request.lstrip("0123456789"), int(request.rstrip("xy"))), now_s)


def _run(queue: BatchQueue[Waiting], now_s: float) -> list[list[int]]:
    """The batches that run now, as the rows of each request."""
    batches = []
    while batch := queue.take(now_s).batch:
        batches.append([each.size for each in batch])
    return batches


@pytest.mark.parametrize(("case", "requests", "at_once", "delayed"), _AS_THEY_COME)
def test_l0_batcher(
    case: str, requests: str, at_once: list[list[int]], delayed: list[list[int]]
) -> None:
    """A batch waits until it has a preferred size, the next cannot join, or the delay is over."""
    queue = _queue(2, 6)
    ran = []
    for request in requests.split():
        _add(queue, request)
        ran += _run(queue, 0.0)
    assert (ran, _run(queue, _DELAY_S)) == (at_once, delayed), case


@pytest.mark.parametrize(("case", "requests", "at_once", "delayed"), _WAITING_ALREADY)
def test_l0_batcher_with_a_scheduler_that_is_delayed(
    case: str, requests: str, at_once: list[list[int]], delayed: list[list[int]]
) -> None:
    """Of many that wait already the largest batch of a preferred size runs first."""
    queue = _queue(2, 6)
    for request in requests.split():
        _add(queue, request)
    assert (_run(queue, 0.0), _run(queue, _DELAY_S)) == (at_once, delayed), case


@pytest.mark.parametrize(("case", "requests", "batches"), _PREFERRED_ONLY)
def test_l0_batcher_without_a_delay(case: str, requests: str, batches: list[list[int]]) -> None:
    """Without a delay what is too few for a preferred size runs too."""
    queue = _queue(4, 6, delay_s=0.0)
    for request in requests.split():
        _add(queue, request)
    assert _run(queue, 0.0) == batches, case


def test_l0_batcher_multi_batch_delayed_use_max_batch() -> None:
    """Once the delay is over, the batch is as large as it may be, of whatever size."""
    queue = _queue(2, 6)
    for request in ("3", "3"):
        _add(queue, request)
    _add(queue, "2", _LATE_S)
    assert _run(queue, _DELAY_S) == [[3, 3, 2]]


@pytest.mark.parametrize(
    ("case", "requests", "at_once", "delayed"),
    [
        ("max_queue_delay_only_default", "1 1 1", [], [[1] * 3]),
        ("max_queue_delay_only_non_default", "1 1 1 1 1 1 1 1 1", [[1] * 8], [[1]]),
    ],
)
def test_l0_batcher_without_preferred_sizes(
    case: str, requests: str, at_once: list[list[int]], delayed: list[list[int]]
) -> None:
    """Without preferred sizes it is max_batch_size that a batch waits for."""
    queue = _queue()
    for request in requests.split():
        _add(queue, request)
    assert (_run(queue, 0.0), _run(queue, _DELAY_S)) == (at_once, delayed), case
