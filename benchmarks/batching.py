"""What dynamic batching gives: the same models with it and without, under 16 clients.

    python benchmarks/batching.py            measure, and print the section
    python benchmarks/batching.py --write    and put it into benchmarks/RESULTS.md

Needs wrk. A convolutional net, four layers of a transformer, and a Python function that takes
5 ms a call whatever the batch; each way of serving them in turn, again and again.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import psutil
import report
from models import write_model
from quick import processor

from workbench import Workbench

TURNS, SECONDS, CLIENTS, MOST = 5, 3, 16, 16
CALL_S = 0.005
DELAY_S = 0.008
_WAYS = {"plain": "", "batched": "dynamic_batching { }"}


def random_weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Random weights by name, scaled so that what goes through them stays of its size."""
    rng = np.random.default_rng(0)
    return {
        name: np.float32(
            rng.standard_normal(shape) * np.prod(shape[1:] if len(shape) > 2 else shape[:1]) ** -0.5
        )
        for name, shape in shapes.items()
    }


def write_conv(folder: Path) -> None:
    """Two convolutions of 28x28."""
    graph = """(float[n, 1, 28, 28] x) => (float[n, size] y) {
        a1 = Conv <pads = [1, 1, 1, 1]> (x, a)
        a2 = Relu(a1)
        b1 = Conv <pads = [1, 1, 1, 1]> (a2, b)
        b2 = Relu(b1)
        b3 = GlobalAveragePool(b2)
        y = Flatten(b3)
    }"""
    write_model(folder, graph, random_weights(a=(16, 1, 3, 3), b=(32, 16, 3, 3)))


def write_transformer(folder: Path) -> None:
    """Four layers over 64 places of 256 numbers."""
    width, nodes, shapes, last = 256, [], {}, "x"
    for n in range(4):
        shapes |= {f"{name}{n}": (width, width) for name in "qkvo"}
        shapes |= {f"up{n}": (width, 4 * width), f"down{n}": (4 * width, width)}
        nodes.append(
            f"""qx{n} = MatMul({last}, q{n})
            kx{n} = MatMul({last}, k{n})
            vx{n} = MatMul({last}, v{n})
            kt{n} = Transpose <perm = [0, 2, 1]> (kx{n})
            s{n} = MatMul(qx{n}, kt{n})
            p{n} = Softmax(s{n})
            a{n} = MatMul(p{n}, vx{n})
            ao{n} = MatMul(a{n}, o{n})
            r{n} = Add({last}, ao{n})
            h{n} = MatMul(r{n}, up{n})
            hr{n} = Relu(h{n})
            z{n} = MatMul(hr{n}, down{n})
            t{n} = Add(r{n}, z{n})"""
        )
        last = f"t{n}"
    nodes.append(f"y = ReduceMean <axes = [1], keepdims = 0> ({last})")
    ports = f"(float[n, 64, {width}] x) => (float[n, size] y)"
    write_model(folder, f"{ports} {{ {' '.join(nodes)} }}", random_weights(**shapes))


def write_models(root: Path) -> dict[str, tuple[int, ...]]:
    """Each model each way; the shape of one of its inputs."""
    shapes = {"conv": (1, 1, 28, 28), "transformer": (1, 64, 256)}
    for name, make in (("conv", write_conv), ("transformer", write_transformer)):
        for way, extra in _WAYS.items():
            folder = root / f"{name}_{way}"
            make(folder)
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
    workbench.register(slow, name="function_batched", batch=MOST, **tensor)
    delay = {"batch": MOST, "max_queue_delay": DELAY_S}
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


if __name__ == "__main__":
    report.publish("batching", section, __doc__)
