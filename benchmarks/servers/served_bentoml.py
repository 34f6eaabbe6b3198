"""BentoML in batches of up to 32: ``python served_bentoml.py FOLDER PORT THING``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import bentoml
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from served import answers

FOLDER, THING = "WORKBENCH_BENCH_FOLDER", "WORKBENCH_BENCH_THING"


@bentoml.service(traffic={"timeout": 60})
class Served:
    """One thing."""

    def __init__(self) -> None:
        self.call = answers(Path(os.environ[FOLDER]), os.environ[THING])

    @bentoml.api(batchable=True, max_batch_size=32)
    def predict(self, x: np.ndarray) -> np.ndarray:
        """The probabilities of some rows."""
        return self.call(x)


if __name__ == "__main__":
    folder, port, thing = sys.argv[1:]
    os.environ |= {FOLDER: folder, THING: thing, "BENTOML_DO_NOT_TRACK": "True"}
    os.chdir(Path(__file__).parent)
    command = ["serve", "served_bentoml:Served", "--host", "127.0.0.1", "--port", port]
    os.execv(sys.executable, [sys.executable, "-m", "bentoml", *command])
