"""Who holds the memory that somebody waits for, in one line."""

import pytest
from residency_rig import Scene

from workbench.core.lifecycle.await_load import holders

HELD = {
    "idle models leave for others, and are not named": ("load a1024", ""),
    "the length of a run is told, from the first of those that overlap; the largest model first": (
        "run a1024; wait 2; run a'; run f2048; wait 3.04",
        (
            "f:1 holds 2.0 KiB in a run that has lasted 3 s, "
            "a:1 holds 1.0 KiB in a run that has lasted 5 s"
        ),
    ),
    "who waits for another model is no run": (
        "load a1024; ask a+b512 | 0",
        "a:1 holds 1.0 KiB and waits for another model, b:1 holds 512 B and is loading",
    ),
    "a run's own beginning counts, though a request came before it": (
        "load a1024; ask a+b512 | 0; wait 5 |; run a'; wait 1; end a+b",
        "a:1 holds 1.0 KiB in a run that has lasted 1 s",
    ),
    "models that are pinned, come or go are named": (
        "load a1024; pin a; load f2048; unload f |; ask b512 | 1",
        (
            "f:1 holds 2.0 KiB and is unloading, a:1 holds 1.0 KiB and is pinned, "
            "b:1 holds 512 B and is loading"
        ),
    ),
    "the largest few": (
        "load a1024; pin a; load f2048; unload f |; ask b512 | 1; ask c256 | -1",
        (
            "f:1 holds 2.0 KiB and is unloading, a:1 holds 1.0 KiB and is pinned, "
            "b:1 holds 512 B and is loading, ..."
        ),
    ),
}


@pytest.mark.parametrize(("script", "told"), HELD.values(), ids=HELD)
def test_who_holds_it(script: str, told: str) -> None:
    """What a residency of 4 KiB says of its models."""
    assert holders(Scene(f"budgets 4096; {script}").residency) == told
