"""Models that may end the process that runs them, run in another one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_RUNS = """
import json
import sys
from pathlib import Path
import numpy as np
from onnx_models import source
from workbench.backends.onnx.backend import OnnxBackend
from workbench.errors import InvalidRequest
from workbench.tensor import DATATYPES, Tensor
for line in sys.stdin:
    path, given, filled = json.loads(line)
    session, inputs = OnnxBackend().load(source(Path(path))), {}
    for name, spec in session.signature.inputs.items():
        value, dtype = given[name], DATATYPES[spec.datatype].dtype
        has_shape = isinstance(value, list) and name != "l"
        array = np.full(value, filled, dtype) if has_shape else np.array(value, dtype)
        inputs[name] = Tensor(spec.datatype, array)
    try:
        print(session.run(inputs, ["y"])[0].shape, flush=True)
    except InvalidRequest as error:
        print(error, flush=True)
    session.close()
"""


class Elsewhere:
    """Another process that runs models: what ends it fails the test that asked, and no other."""

    process: subprocess.Popen[str] | None = None

    def run(self, path: Path, given: dict[str, Any], filled: int = 0) -> str:
        """The shape of the output *y*, or why the request was refused.

        *given* has a shape for each input, to be *filled*, or the number itself; ``l`` is numbers.
        """
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _RUNS], env={"PYTHONPATH": ":".join(sys.path)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(path), given, filled]) + "\n")
        self.process.stdin.flush()
        told = self.process.stdout.readline()
        if not told:
            self.process.wait(timeout=60)
            pytest.fail(f"the process ended: {self.close()}")
        return told.removesuffix("\n")

    def close(self) -> str:
        """End it; its status, and the end of what it complained of."""
        process, self.process = self.process, None
        if process is None:
            return ""
        if process.poll() is None:  # closing its input may not do: forked children have it open
            process.kill()
        complained = process.communicate(timeout=60)[1][-1000:]
        return f"{process.returncode} {complained}"
