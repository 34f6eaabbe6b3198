"""OpenAPI documents against a live server: the protocol's and ours, as schemathesis plays them.

It holds the status, type and body of every answer against the document, and sees that what the
document forbids is refused. That everything else is taken is the one thing it is not asked to check
(positive_data_acceptance): the document knows no model's tensors.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from workbench import Workbench

HERE = Path(__file__).parent
SCHEMATHESIS = HERE.parent.parent / ".venv-clients" / "bin" / "st"
DOCUMENT = HERE / "open_inference_rest.yaml"
TIMES = int(os.environ.get("FUZZ_TIMES", "1"))  # of the examples of a run: make fuzz wants more


def run(workbench: Workbench, document: Path, folder: Path, options: str) -> int:
    """How many requests schemathesis made, working in *folder*; a failure of its fails the test."""
    if not SCHEMATHESIS.exists():
        pytest.skip("there is no .venv-clients: make clients makes it")
    (folder / "options.toml").write_text(options, "utf-8")
    command = [SCHEMATHESIS, "--config-file", folder / "options.toml", "run", document]
    chosen = ["--url", workbench.url, "--exclude-checks", "positive_data_acceptance", "--seed", "1"]
    chosen += ["--request-timeout", "60"]  # not 10 s: the machine may have much else to do
    done = subprocess.run(
        [*command, *chosen, "--no-color", "--warnings", "off"],
        cwd=folder, capture_output=True, encoding="utf-8", timeout=250 * TIMES, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert counts is not None, done.stdout
    assert counts[1] == counts[2], done.stdout
    return int(counts[1])


def test_schemathesis(tmp_path: Path) -> None:
    """Whatever it makes of the document, alone and in sequences, no answer is a failure."""
    with Workbench() as workbench:

        @workbench.model(
            inputs={"input0": ("UINT32", [2, 2]), "input1": ("BOOL", [3])},
            outputs={"output0": ("FP32", [3, 2])},
        )
        def mymodel(input0: Any, input1: Any) -> Any:  # the model of the document's examples
            return np.outer(input1, input0.sum(axis=0)).astype(np.float32)

        options = f"""
            [phases.fuzzing.generation]
            max-examples = {4 * TIMES}
            [phases.stateful.generation]
            max-examples = {2 * TIMES}
        """
        assert run(workbench, DOCUMENT, tmp_path, options) > 150


def test_schemathesis_of_our_own_document(tmp_path: Path) -> None:
    """The document that a server tells of itself is true: all that it has, in any order."""
    options = f"""
        [checks.not_a_server_error]  # 501 is an answer too, where the document says so
        expected-statuses = ["2xx", "4xx", 501]
        [phases.fuzzing.generation]
        max-examples = {2 * TIMES}
        [phases.stateful.generation]
        max-examples = {2 * TIMES}
    """
    ran: list[Any] = []
    with Workbench(device="cpu", shared_memory=True) as workbench:
        # of two inputs, so that no body is a raw request, which the document cannot tell from JSON
        @workbench.model(
            inputs={"numbers": ("FP32", [3]), "texts": ("BYTES", [-1])},
            outputs={"same": ("FP32", [3]), "texts": ("BYTES", [-1])},
        )
        def mixed(numbers: Any, texts: Any) -> Any:
            ran.append(numbers)
            return numbers, texts

        document = tmp_path / "openapi.json"
        document.write_bytes(httpx.get(f"{workbench.url}/schema/openapi.json").content)
        assert run(workbench, document, tmp_path, options) > 400
    assert len(ran) > 10
