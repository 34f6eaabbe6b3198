"""Options of traces that several threads change."""

from collections.abc import ValuesView
from pathlib import Path
from typing import Any

from workbench.core.tracing import Tracing


def test_options_are_read_under_the_lock(tmp_path: Path) -> None:
    """A change sees no change of another thread in between, and neither does who is told of it."""
    locked: list[bool] = []

    class Samplers(dict[str, Any]):
        def values(self) -> ValuesView[Any]:
            locked.append(tracing._lock.locked())
            return super().values()

    def switch(_: object) -> None:
        locked.append(tracing._lock.locked())

    tracing = Tracing(tmp_path / "trace.json", switch)
    tracing._samplers = Samplers()
    tracing.change({"timestamps": True})
    assert tracing.is_on
    tracing.change({"timestamps": None})
    assert not tracing.is_on
    tracing.change({"timestamps": True}, "m")
    tracing.close()
    assert not tracing.is_on
    assert locked == [True] * len(locked)
    assert len(locked) == 8
