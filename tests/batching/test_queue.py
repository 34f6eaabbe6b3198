"""Who waits for a model, for how long, and with whom they run: a pure queue."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.batching import BatchQueue, Waiting
from workbench.errors import QueueRefused
from workbench.model import Batching, QueuePolicy


@dataclass(slots=True, eq=False)
class Named(Waiting):
    what: str = ""


def waiting(what: str, size: int = 1, key: str = "", **asked: float) -> Named:
    return Named(key, size, **asked, what=what)  # type: ignore[arg-type]


def queue_of(*names: str, most: int = 4, **batching: object) -> BatchQueue[Named]:
    """Of those, of size 1, which came at 0 s; ``a3`` is of size 3, ``ax`` of the key x."""
    queue: BatchQueue[Named] = BatchQueue(Batching(**batching), most)  # type: ignore[arg-type]
    for name in names:
        size = int(name[1:]) if name[1:].isdigit() else 1
        queue.add(waiting(name, size, name[1:] if not name[1:].isdigit() else ""), 0.0)
    return queue


def took(queue: BatchQueue[Named], now_s: float = 0.0) -> list[str]:
    return [each.what for each in queue.take(now_s).batch]


@pytest.mark.parametrize(
    ("names", "batches"),
    [
        ("", [[]]),
        ("a", [["a"]]),
        ("a b c", [["a", "b", "c"]]),
        ("a b c d e", [["a", "b", "c", "d"], ["e"]]),
        ("a3 b2 c", [["a3"], ["b2", "c"]]),
        ("a4 b", [["a4"], ["b"]]),
        ("a9 b", [["a9"], ["b"]]),
        ("ax by cx d", [["ax"], ["by"], ["cx"], ["d"]]),
    ],
)
def test_who_runs_together(names: str, batches: list[list[str]]) -> None:
    """As many as fit, in the order of their coming; nobody passes one who does not fit."""
    queue = queue_of(*names.split())
    assert [took(queue) for _ in batches] == batches
    assert len(queue) == 0


def test_without_batches() -> None:
    """Where there are none, each runs alone."""
    queue = queue_of("a", "b", most=0)
    assert [took(queue), took(queue), took(queue)] == [["a"], ["b"], []]


@pytest.mark.parametrize(("names", "expected"), [("a2 b c3", ["a2"]), ("a3 b2", ["a3"])])
def test_larger_than_all_preferred_sizes(names: str, expected: list[str]) -> None:
    """Where more wait, a batch is of a preferred size, or else within the largest."""
    assert took(queue_of(*names.split(), most=8, preferred=(2, 4))) == expected


def test_a_delay() -> None:
    """If a delay is asked for, the first waits so long for others, unless nobody could join."""
    queue = queue_of("a", delay_s=1.0)
    taken = queue.take(0.25)
    assert (taken.batch, taken.wait_s) == ([], 0.75)
    queue.add(waiting("b"), 0.5)
    assert queue.take(0.5).wait_s == 0.5
    assert took(queue, 1.0) == ["a", "b"]
    for name in "cdef":
        queue.add(waiting(name), 2.0)
    assert took(queue, 2.0) == ["c", "d", "e", "f"]


def test_a_delay_counts_from_who_came_first() -> None:
    """Also where others of a higher priority are to run before."""
    queue = queue_of("a", delay_s=1.0, levels=2, default_level=2)
    queue.add(waiting("b", level=1), 0.75)
    assert queue.take(0.75).wait_s == 0.25
    assert took(queue, 1.0) == ["b", "a"]


def test_a_delay_ends_where_somebody_waited_too_long() -> None:
    """Whoever may not wait as long as the delay is not made to."""
    queue = queue_of(delay_s=10.0, policy=QueuePolicy(timeout_s=1.0))
    queue.add(waiting("a"), 0.0)
    assert queue.take(0.25).wait_s == 0.75
    assert [each.what for each in queue.take(1.0).expired] == ["a"]


def test_a_queue_that_is_full() -> None:
    """More than the policy allows are refused."""
    queue = queue_of("a", "b", policy=QueuePolicy(most=2))
    with pytest.raises(QueueRefused, match=r"^the queue of this model is full: "):
        queue.add(waiting("c"), 0.0)
    took(queue)
    queue.add(waiting("c"), 0.0)


def test_who_waits_too_long() -> None:
    """They are taken out when their time is over, and nobody else."""
    queue = queue_of(policy=QueuePolicy(timeout_s=1.0))
    queue.add(waiting("a"), 0.0)
    queue.add(waiting("b"), 0.5)
    taken = queue.take(1.0)
    assert [each.what for each in taken.expired] == ["a"]
    assert [each.what for each in taken.batch] == ["b"]


def test_who_is_delayed() -> None:
    """With that action they are not refused, but go behind all others, who come later."""
    queue = queue_of(policy=QueuePolicy(timeout_s=1.0, delays=True), most=1)
    queue.add(waiting("a"), 0.0)
    queue.add(waiting("b"), 0.5)
    assert [took(queue, 1.0), took(queue, 1.0)] == [["b"], ["a"]]


def test_who_is_delayed_keeps_its_priority_and_its_place() -> None:
    """It goes before the next level, and counts among those that its queue may hold."""
    policy = QueuePolicy(timeout_s=1.0, delays=True, most=2)
    queue = queue_of(levels=2, default_level=1, policy=policy, most=1)
    for name, level in (("a", 1), ("b", 1), ("c", 2)):
        queue.add(waiting(name, level=level), 0.0)
    assert queue.take(2.0).batch[0].what == "a"
    queue.add(waiting("d", level=1), 2.0)
    with pytest.raises(QueueRefused):
        queue.add(waiting("e", level=1), 2.0)
    assert [took(queue, 2.0)[0] for _ in range(3)] == ["d", "b", "c"]


def test_who_is_delayed_hurries_nobody() -> None:
    """Its time is over: nobody is to look again at once for it."""
    queue = queue_of(delay_s=10.0, policy=QueuePolicy(timeout_s=1.0, delays=True))
    queue.add(waiting("a"), 0.0)
    assert queue.take(2.0).wait_s == 8.0


def test_who_leaves() -> None:
    """Whoever waits may leave, once."""
    queue = queue_of("a")
    one = waiting("b")
    queue.add(one, 0.0)
    assert [queue.remove(one), queue.remove(one)] == [True, False]
    assert took(queue) == ["a"]


@pytest.mark.parametrize(
    ("may", "default_s", "asked_s", "waits_s"),
    [
        (False, 1.0, 0.5, 1.0),
        (True, 1.0, 0.5, 0.5),
        (True, 1.0, 2.0, 1.0),
        (True, 0.0, 2.0, 2.0),
        (True, 1.0, 0.0, 1.0),
        (False, 0.0, 2.0, float("inf")),
    ],
)
def test_a_request_with_a_timeout(
    may: bool, default_s: float, asked_s: float, waits_s: float
) -> None:
    """Where it may, a request waits less than the default, never more."""
    policy = QueuePolicy(timeout_s=default_s, may_override=may)
    queue: BatchQueue[Named] = BatchQueue(Batching(policy=policy), 4)
    one = waiting("a", timeout_s=asked_s)
    queue.add(one, 0.0)
    assert one.deadline_s == waits_s


def test_priorities() -> None:
    """The lowest level goes first; none, or one that there is not, is the default."""
    queue = queue_of(levels=3, default_level=2, most=1)
    for name, level in (("c", 3), ("b", 0), ("a", 1), ("d", 7), ("e", 1)):
        queue.add(waiting(name, level=level), 0.0)
    assert [took(queue)[0] for _ in range(5)] == ["a", "e", "b", "d", "c"]


def test_policies_of_levels() -> None:
    """A level's own policy counts before the default one."""
    queue = queue_of(levels=2, default_level=1, policies={2: QueuePolicy(most=1)})
    for _ in range(3):
        queue.add(waiting("a", level=1), 0.0)
    queue.add(waiting("b", level=2), 0.0)
    with pytest.raises(QueueRefused):
        queue.add(waiting("c", level=2), 0.0)


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from("xy"), st.integers(0, 3))),
    st.sets(st.integers(1, 4), max_size=3),
    st.booleans(),
)
def test_everybody_runs_once(
    sizes: list[tuple[int, str, int]], preferred: set[int], ordered: bool
) -> None:
    """Whatever comes is taken exactly once, in batches that fit, of one key each."""
    batching = Batching(tuple(preferred), ordered=ordered, levels=3, default_level=2)
    queue: BatchQueue[Named] = BatchQueue(batching, 4)
    for number, (size, key, level) in enumerate(sizes):
        queue.add(Named(key, size, level, what=str(number)), 0.0)
    seen: list[str] = []
    while len(queue):
        batch = queue.take(0.0).batch
        assert batch
        assert len(batch) == 1 or sum(each.size for each in batch) <= 4
        assert len({each.key for each in batch}) == 1
        seen.extend(each.what for each in batch)
    assert sorted(map(int, seen)) == list(range(len(sizes)))


def test_company() -> None:
    """A batch waits for so many requests until then, unless it is complete."""
    queue = queue_of("a", "b")
    queue.expect(3, 1.0)
    assert queue.take(0.25).wait_s == 0.75
    assert took(queue, 1.0) == ["a", "b"]
    queue = queue_of("a", "b", "cx")
    queue.expect(4, 1.0)
    assert took(queue) == ["a", "b"]
    queue.add(waiting("d", key="x"), 0.0)
    queue.expect(2, 1.0)
    assert took(queue) == ["cx", "d"]
