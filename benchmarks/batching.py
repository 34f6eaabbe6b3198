"""What dynamic batching gives: the same models with it and without, under 16 clients.

    python benchmarks/batching.py            measure, and print the section
    python benchmarks/batching.py --write    and put it into benchmarks/RESULTS.md

Needs wrk. A convolutional net, four layers of a transformer, and a Python function that takes
5 ms a call whatever the batch; each way of serving them in turn, again and again.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import psutil
import report
from onnx import TensorProto, helper, numpy_helper, save
from quick import processor

from workbench import Workbench

TURNS, SECONDS, CLIENTS, MOST = 5, 3, 16, 16
CALL_S = 0.005
DELAY_S = 0.008
_WAYS = {"plain": "", "batched": "dynamic_batching { }"}


def weights(rng: np.random.Generator, name: str, *shape: int) -> object:
    """Random ones, scaled so that what goes through them stays of its size."""
    scale = np.prod(shape[1:] if len(shape) > 2 else shape[:1]) ** -0.5
    return numpy_helper.from_array(np.float32(rng.standard_normal(shape) * scale), name)


def write(path: Path, nodes: list[object], given: list[object], dims: Iterable[object]) -> None:
    """A model of one input x of *dims* and one output y, whose shape nobody knows."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *dims])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "size"])
    graph = helper.make_graph(nodes, "model", [x], [y], given)
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def write_conv(path: Path) -> None:
    """Two convolutions of 28x28."""
    rng, node = np.random.default_rng(0), helper.make_node
    nodes = [
        node("Conv", ["x", "a"], ["a1"], pads=[1] * 4),
        node("Relu", ["a1"], ["a2"]),
        node("Conv", ["a2", "b"], ["b1"], pads=[1] * 4),
        node("Relu", ["b1"], ["b2"]),
        node("GlobalAveragePool", ["b2"], ["b3"]),
        node("Flatten", ["b3"], ["y"]),
    ]
    given = [weights(rng, "a", 16, 1, 3, 3), weights(rng, "b", 32, 16, 3, 3)]
    write(path, nodes, given, (1, 28, 28))


def write_transformer(path: Path) -> None:
    """Four layers over 64 places of 256 numbers."""
    rng, node, width = np.random.default_rng(0), helper.make_node, 256
    nodes, given, last = [], [], "x"
    for n in range(4):
        given += [weights(rng, f"{name}{n}", width, width) for name in "qkvo"]
        given.append(weights(rng, f"up{n}", width, 4 * width))
        given.append(weights(rng, f"down{n}", 4 * width, width))
        nodes += [node("MatMul", [last, f"{name}{n}"], [f"{name}x{n}"]) for name in "qkv"]
        nodes += [
            node("Transpose", [f"kx{n}"], [f"kt{n}"], perm=[0, 2, 1]),
            node("MatMul", [f"qx{n}", f"kt{n}"], [f"s{n}"]),
            node("Softmax", [f"s{n}"], [f"p{n}"]),
            node("MatMul", [f"p{n}", f"vx{n}"], [f"a{n}"]),
            node("MatMul", [f"a{n}", f"o{n}"], [f"ao{n}"]),
            node("Add", [last, f"ao{n}"], [f"r{n}"]),
            node("MatMul", [f"r{n}", f"up{n}"], [f"h{n}"]),
            node("Relu", [f"h{n}"], [f"hr{n}"]),
            node("MatMul", [f"hr{n}", f"down{n}"], [f"z{n}"]),
            node("Add", [f"r{n}", f"z{n}"], [f"t{n}"]),
        ]
        last = f"t{n}"
    nodes.append(node("ReduceMean", [last], ["y"], axes=[1], keepdims=0))
    write(path, nodes, given, (64, width))


def write_models(root: Path) -> dict[str, tuple[int, ...]]:
    """Each model each way; the shape of one of its inputs."""
    shapes = {"conv": (1, 1, 28, 28), "transformer": (1, 64, 256)}
    for name, make in (("conv", write_conv), ("transformer", write_transformer)):
        for way, extra in _WAYS.items():
            folder = root / f"{name}_{way}"
            folder.mkdir()
            make(folder / "model.onnx")
            (folder / "config.pbtxt").write_text(f"max_batch_size: {MOST} {extra}")
    return shapes


def serve_function(workbench: Workbench) -> None:
    """A function that takes 5 ms a call, one call at a time, each way."""
    busy = threading.Lock()

    def slow(x: np.ndarray) -> np.ndarray:
        with busy:
            time.sleep(CALL_S)
            return x * 2

    tensor = {"inputs": {"x": ("FP32", [-1, 4])}, "outputs": {"y": ("FP32", [-1, 4])}}
    workbench.register(slow, name="function_plain", **tensor)
    workbench.register(slow, name="function_batched", max_batch_size=MOST, **tensor)
    delay = {"max_batch_size": MOST, "max_queue_delay": DELAY_S}
    workbench.register(slow, name="function_delayed", **delay, **tensor)


def rate(workbench: Workbench, model: str, shape: tuple[int, ...], work: Path) -> float:
    """Answers a second, of binary requests with one element each."""
    count = int(np.prod(shape))
    entry = {"name": "x", "datatype": "FP32", "shape": shape}
    entry["parameters"] = {"binary_data_size": 4 * count}
    head = json.dumps({"inputs": [entry]}).encode()
    (work / "body").write_bytes(head + np.ones(count, np.float32).tobytes())
    (work / "post.lua").write_text(
        f'wrk.method = "POST"; wrk.body = io.open("{work / "body"}", "rb"):read("*a")\n'
        f'wrk.headers["Inference-Header-Content-Length"] = "{len(head)}"\n'
    )
    url = f"{workbench.url}/v2/models/{model}/infer"
    command = ["wrk", "-t1", f"-c{CLIENTS}", f"-d{SECONDS}s", "-s", str(work / "post.lua"), url]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in told:
        raise RuntimeError(told)
    return float(re.search(r"Requests/sec:\s*([\d.]+)", told)[1])  # type: ignore[index]


def settle(workbench: Workbench) -> None:
    """Wait until nothing runs any more: a function goes on when its client is gone."""
    while any(model.leases for model in workbench.snapshot().models):
        time.sleep(0.01)


def sizes(workbench: Workbench) -> dict[str, float]:
    """How many elements a batch has, on average, by model."""
    return {
        model.id.name: model.requests.inferences / max(1, model.requests.executions)
        for model in workbench.snapshot().models
    }


def section(work: Path) -> str:
    """All that is measured, as a section of RESULTS.md."""
    models = work / "models"
    models.mkdir()
    shapes = {**write_models(models), "function": (1, 4)}
    workbench = Workbench(models, device="cpu", load="all")
    serve_function(workbench)
    rates: dict[str, list[float]] = {}
    with workbench:
        for _ in range(TURNS):
            for name, shape in shapes.items():
                ways = [*_WAYS, "delayed"] if name == "function" else list(_WAYS)
                for way in ways:
                    model = f"{name}_{way}"
                    rates.setdefault(model, []).append(rate(workbench, model, shape, work))
                    settle(workbench)
        batch = sizes(workbench)
    titles = {
        "conv": "two convolutions of 28×28",
        "transformer": "four layers of a transformer, 64×256",
        "function": f"a function of {CALL_S * 1e3:.0f} ms a call",
    }
    rows = []
    for name, title in titles.items():
        plain = statistics.median(rates[f"{name}_plain"])
        rows.append([title, "one by one", f"{plain:,.0f}/s", "1.00", "1.0"])
        for way, words in (
            ("batched", "in batches"),
            ("delayed", f"in batches, with a delay of {DELAY_S * 1e3:.0f} ms"),
        ):
            if f"{name}_{way}" in rates:
                median = statistics.median(rates[f"{name}_{way}"])
                size = f"{batch[f'{name}_{way}']:.1f}"
                rows.append([title, words, f"{median:,.0f}/s", f"{median / plain:.2f}", size])
    heading = "## Dynamic batching"
    made = f"Made by `python benchmarks/batching.py --write`, {datetime.now(UTC):%Y-%m-%d}."
    words = (
        f"{processor()}, {psutil.cpu_count()} cores, wrk on the same ones; {CLIENTS} clients, "
        f"binary requests of one element, batches of up to {MOST}; medians of {TURNS} turns. A run "
        "that is known to take less than half a millisecond is made at once, without a batch."
    )
    heads = ["model", "how", "answers", "of one by one", "elements in a batch"]
    return "\n\n".join((heading, made, words, report.markdown(heads, rows)))


def main() -> None:
    """Measure, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write benchmarks/RESULTS.md")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        text = section(Path(work))
    print(text)
    if arguments.write:
        report.write("batching", text)


if __name__ == "__main__":
    main()
