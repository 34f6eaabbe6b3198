"""How long a failed load is remembered."""

from workbench.errors import LoadFailed
from workbench.model import ModelId
from workbench.residency.failures import Failures

A, B = ModelId("a", 1), ModelId("b", 1)


def test_pauses_grow() -> None:
    """Each failure doubles the pause, from 1 to 8 seconds."""
    failures, now_s = Failures(), 0.0
    for pause_s in (1.0, 2.0, 4.0, 8.0, 8.0):
        failures.add(A, LoadFailed("broken"), now_s)
        assert failures.recall(A, now_s + 0.99 * pause_s) is not None
        now_s += pause_s
        assert failures.recall(A, now_s) is None
    assert failures.recall(B, now_s) is None


def test_forgotten() -> None:
    """A model that loaded begins anew."""
    failures = Failures()
    failures.add(A, LoadFailed("broken"), 0.0)
    failures.add(A, LoadFailed("broken"), 1.0)
    del failures[A]
    assert failures.recall(A, 1.0) is None
    failures.add(A, LoadFailed("broken"), 1.0)
    told = failures.recall(A, 1.25)
    assert str(told) == ("broken (it is not tried again for 0.8 s, unless loaded by hand)")


def test_a_storm_is_one_failure() -> None:
    """Failures within a pause do not lengthen it."""
    failures = Failures()
    for _ in range(20):
        failures.add(A, LoadFailed("broken"), 0.5)
    assert failures.recall(A, 1.4) is not None
    assert failures.recall(A, 1.5) is None
