"""The gate before CUDA: many at once, or one alone."""

from __future__ import annotations

import threading

from workbench.gate import Gate


def test_the_gate() -> None:
    """Many are in at once; one is alone only where nobody is in, and others wait for it."""
    gate = Gate()
    with gate, gate, gate.alone() as alone:
        assert not alone
    came = threading.Event()

    def come() -> None:
        with gate:
            came.set()

    with gate.alone() as alone:
        assert alone
        with gate.alone() as second:
            assert not second
        thread = threading.Thread(target=come)
        thread.start()
        assert not came.wait(0.01)
    assert came.wait(30)
    thread.join(30)
    with gate.alone() as alone:
        assert alone
