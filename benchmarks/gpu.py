"""Models on a GPU: what they take, what comes back, and how fast many clients are answered.

    python benchmarks/gpu.py             measure, and print the page
    python benchmarks/gpu.py --write     and write it into benchmarks/GPU.md
    python benchmarks/gpu.py --cpu       a rehearsal without a GPU

Memory is what the driver says. The clients call the server without a wire; the bare
loop is ``session.run_with_iobinding`` with inputs and outputs on the device.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import report
from models import write_model

from workbench.core import DeviceStatus, ServerCore
from workbench.errors import WorkbenchError
from workbench.host_memory import counted_nbytes
from workbench.inference import InferRequest
from workbench.samples import write_models
from workbench.settings import Settings
from workbench.tensor import Tensor

MIB = 2**20
BATCH, CLIENTS, SECONDS = 32, (1, 8, 64), 3.0


def write_conv(root: Path) -> None:
    """A convolutional net of four layers on 1x28x28, of random weights."""
    rng = np.random.default_rng(0)
    weights, nodes, last, channels = {}, [], "x", 1
    for layer, width in enumerate((32, 64, 64, 64)):
        kernel = rng.standard_normal((width, channels, 3, 3), np.float32)
        weights[f"w{layer}"] = kernel / (3 * channels**0.5)
        nodes.append(f"c{layer} = Conv <pads = [1, 1, 1, 1]> ({last}, w{layer})")
        nodes.append(f"r{layer} = Relu(c{layer})")
        last, channels = f"r{layer}", width
    nodes.append(f"y = GlobalAveragePool({last})")
    ports = "(float[n, 1, 28, 28] x) => (float[n, 64, 1, 1] y)"
    write_model(root / "conv" / "1", f"{ports} {{ {' '.join(nodes)} }}", weights)


def write_expand(root: Path) -> None:
    """A model that makes as much as it is told to."""
    graph = """(float[1] x, int64[rank] shape) => (float y) {
        large = Expand(x, shape)
        y = ReduceSum <keepdims = 0> (large)
    }"""
    write_model(root / "expand" / "1", graph)


def status(core: ServerCore) -> DeviceStatus:
    """The first device and its books."""
    return core.status.snapshot().devices[0]


def used_nbytes(core: ServerCore) -> int:
    """What the device's memory has in use; on the CPU, what this process takes."""
    now = status(core)
    if now.device.kind == "cpu" or now.system is None:
        return counted_nbytes()
    return now.system.used_nbytes


def ask(core: ServerCore, model: str, **inputs: np.ndarray) -> None:
    """One run."""
    core.requests.infer(
        InferRequest(model, {name: Tensor.of(value) for name, value in inputs.items()})
    )


def memory(core: ServerCore) -> list[list[str]]:
    """What comes and goes with models, in MiB, by the driver and by the books."""
    rows = []

    def row(what: str, before_nbytes: int) -> None:
        now = status(core)
        by_books = f"{now.held_nbytes / MIB:.0f}, surplus {now.surplus_nbytes / MIB:.1f}"
        rows.append([what, f"{(used_nbytes(core) - before_nbytes) / MIB:.1f}", by_books])

    start = used_nbytes(core)
    image = np.ones((1, 1, 28, 28), np.float32)
    ask(core, "conv", x=image)
    row("a first small model, and its first run", start)
    core.models.unload("conv")
    row("and without it: the base", start)
    base = used_nbytes(core)
    width = core.status.signature("heavy_0").inputs["x"].shape[1]
    for number in range(4):
        ask(core, f"heavy_{number}", x=np.ones((1, width), np.float32))
    row("four models of 100 MiB, each run once", base)
    for size in (64, 1024):
        ask(core, "heavy_0", x=np.ones((size, width), np.float32))
    row("and one of them on batches of 64 and 1024", base)
    one = np.ones((1, width), np.float32)
    with ThreadPoolExecutor(16) as pool:  # each run at once has a stream and handles of its own
        list(pool.map(lambda _: ask(core, "heavy_1", x=one), range(160)))
    row("and another by 16 clients at once", base)
    for number in range(4):
        core.models.unload(f"heavy_{number}")
    row("and without all four", base)
    for turn in range(20):
        core.models.load(f"heavy_{turn % 4}")
        core.models.unload(f"heavy_{turn % 4}")
    row("after 20 more loads and unloads", base)
    return rows


def exhausted(core: ServerCore) -> str:
    """What a run says for which memory runs out, and whether the next one is answered."""
    one, total_nbytes = np.ones(1, np.float32), status(core).device.total_nbytes
    try:
        ask(core, "expand", x=one, shape=np.array([total_nbytes]))
        said = "it ran"
    except WorkbenchError as error:
        said = f"{type(error).__name__}: {error}"
    ask(core, "expand", x=one, shape=np.array([1000]))
    return f"{said}. The next run is answered."


def rate(run: object, clients: int) -> float:
    """Batches a second of *clients* that ask in a loop."""
    assert callable(run)
    stop = threading.Event()

    def loop(_: int) -> int:
        count = 0
        while not stop.is_set():
            run()
            count += 1
        return count

    run()
    timer = threading.Timer(SECONDS, stop.set)
    began_s = time.perf_counter()
    timer.start()
    with ThreadPoolExecutor(clients) as pool:
        done = sum(pool.map(loop, range(clients)))
    return done / (time.perf_counter() - began_s)


def speed(core: ServerCore, models: Path, *, cuda: bool) -> list[list[str]]:
    """Batches a second, ours and the bare loop's, interleaved; medians of three."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime as ort

    images = np.ones((BATCH, 1, 28, 28), np.float32)
    device = "cuda" if cuda else "cpu"
    providers = [("CUDAExecutionProvider", {})] if cuda else []
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        models / "conv" / "1" / "model.onnx",
        options,
        providers=[*providers, "CPUExecutionProvider"],
    )
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(images, device, 0))
    binding.bind_output("y", device, 0)
    request = {"x": Tensor.of(images)}
    ours: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
    bare: list[float] = []
    for _ in range(3):
        bare.append(rate(lambda: session.run_with_iobinding(binding), 1))
        for clients in CLIENTS:
            ours[clients].append(
                rate(lambda: core.requests.infer(InferRequest("conv", request)), clients)
            )
    base = statistics.median(bare)
    rows = [["the bare loop", f"{base:,.0f}", "1.00"]]
    for clients in CLIENTS:
        median = statistics.median(ours[clients])
        rows.append([f"{clients} clients", f"{median:,.0f}", f"{median / base:.2f}"])
    return rows


def page(core: ServerCore, models: Path, *, cuda: bool) -> str:
    """All of it, as Markdown."""
    device = status(core).device
    where = f"{device.name}, {device.total_nbytes / 2**30:.0f} GiB"
    parts = [
        "# On a GPU",
        f"Made by `python benchmarks/gpu.py` on {datetime.now(UTC):%Y-%m-%d}, on {where}.",
        "## Memory, in MiB",
        report.markdown(["what", "more by the system", "by the books"], memory(core)),
        "## Memory that runs out",
        exhausted(core),
        f"## A convolutional net on batches of {BATCH}",
        report.markdown(
            ["who", "batches a second", "of the bare loop"], speed(core, models, cuda=cuda)
        ),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measure, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        write_models(models, 4, 100 * MIB)
        write_conv(models)
        write_expand(models)
        device = "cpu" if arguments.cpu else "cuda:0"
        core = ServerCore(Settings.of(models, environ={}, device=device, cache="off"))
        core.open()
        with closing(core):
            text = page(core, models, cuda=not arguments.cpu)
    print(text)
    if arguments.write:
        (Path(__file__).parent / "GPU.md").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
