"""The seconds that one small request takes of our own code: all but HTTP parsing and the engine.

The data plane answers a request on the spot, as the protocol class asks it to;
the engine alone runs the same model on the same array; both in turns. Printed
is the difference of the medians. Run by ``serving.py``, once a repeat.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from workbench.core import ServerCore
from workbench.http import DataPlane
from workbench.http.paths import Target
from workbench.inference import InferRequest
from workbench.settings import Settings
from workbench.tensor import Tensor

MODELS = Path(__file__).parent.parent / "sample_models"
ROUNDS, CALLS = 40, 500


def main() -> None:
    """Print it."""
    core = ServerCore(Settings.of(MODELS, environ={}, device="cpu"))
    core.open()
    try:
        print(_overhead_s(core))
    finally:
        core.close()


def _overhead_s(core: ServerCore) -> float:
    pixels = np.random.default_rng(0).random((1, 64), dtype=np.float32)
    data = pixels.ravel().tolist()
    entry = {"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": data}
    body = json.dumps({"inputs": [entry]}).encode()
    plane = DataPlane(core)
    head = plane.read_head(Target("digits", None, "infer"), [])
    with core.lease("digits") as lease:
        run, options = lease.session._run, lease.session._options  # noqa: SLF001
    outputs, feed = ("probabilities",), {"pixels": pixels}

    def answer() -> None:
        while plane.answer_now(head, body) is None:  # until its runs are known to be brief
            core.infer(InferRequest("digits", {"pixels": Tensor("FP32", pixels)}))

    def engine() -> None:
        run(outputs, feed, options)

    rounds = [(_each_s(answer), _each_s(engine)) for _ in range(ROUNDS)]
    whole, bare = zip(*rounds[1:], strict=True)
    return statistics.median(whole) - statistics.median(bare)


def _each_s(work: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    for _ in range(CALLS):
        work()
    return (time.perf_counter() - began_s) / CALLS


if __name__ == "__main__":
    main()
