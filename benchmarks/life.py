"""The life of a model: loaded, asked, unloaded, loaded again, beside plain ONNX Runtime.

    python benchmarks/life.py            measure, and print the tables
    python benchmarks/life.py --write    and put them into benchmarks/RESULTS.md

Each life is a process of its own. Plain ONNX Runtime loads the same file in a
loop, with its default options but for one thread a run, and drops the session.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import report
from quick import processor

from workbench.core import ServerCore
from workbench.events import ModelNotPrepared, ModelPrepared
from workbench.host_memory import anonymous_nbytes
from workbench.inference import InferRequest
from workbench.samples import write_models
from workbench.settings import Settings
from workbench.tensor import Tensor

SIZES_MB = (10, 100, 500)
WAYS = ("ONNX Runtime", "plain", "prepared", "mapped")
LIVES, LOADS = 3, 5
CHURNED, IDLE_S = 50, 5.0
NAME = "heavy_0"
MIB = 2**20

Lifetime = dict[str, float]  # seconds, and bytes of anonymous memory over the beginning


def live(load: Callable[[], Callable[[], object]], unload: Callable[[], None]) -> Lifetime:
    """Load and ask once; unload; so often; what the first and the median of the others took."""
    begin_nbytes = anonymous_nbytes()
    came: list[Lifetime] = []
    for _ in range(LOADS):
        began_s = time.perf_counter()
        ask = load()
        ask()
        answered_s = time.perf_counter()
        runs_s = [_timed(ask) for _ in range(5)]
        loaded_nbytes = anonymous_nbytes() - begin_nbytes
        unloading_s = time.perf_counter()
        del ask
        unload()
        came.append(
            {
                "answered": answered_s - began_s,
                "run": statistics.median(runs_s),
                "loaded": loaded_nbytes,
                "unload": time.perf_counter() - unloading_s,
                "after": anonymous_nbytes() - begin_nbytes,
            }
        )
    again = {key: statistics.median(one[key] for one in came[1:]) for key in came[0]}
    return {**again, "first": came[0]["answered"], "after": came[-1]["after"]}


def _timed(act: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    act()
    return time.perf_counter() - began_s


def live_bare(models: Path) -> Lifetime:
    """The life with ONNX Runtime alone."""
    path = models / NAME / "1" / "model.onnx"
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    sessions: list[Any] = []

    def load() -> Callable[[], object]:
        sessions.append(ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
        x = np.ones((1, sessions[0].get_inputs()[0].shape[1]), np.float32)
        return lambda: sessions[0].run(None, {"x": x})

    def unload() -> None:
        sessions.clear()
        gc.collect()

    return live(load, unload)


@contextmanager
def serving(models: Path, **options: object) -> Iterator[Any]:
    """A server without a wire."""
    core = ServerCore(Settings.of(models, environ={}, device="cpu", **options))
    core.open()
    with closing(core):
        yield core


def live_here(models: Path) -> Lifetime:
    """The life in our server."""
    with serving(models) as core:
        width = core.status.signature(NAME).inputs["x"].shape[1]
        request = {"x": Tensor("FP32", np.ones((1, width), np.float32))}

        def load() -> Callable[[], object]:
            return lambda: core.requests.infer(InferRequest(NAME, request))

        return live(load, lambda: core.models.unload(NAME))


def prepare(models: Path) -> dict[str, float]:
    """Have the model prepared; what that took."""
    with serving(models) as core:
        core.models.load(NAME)
        cursor = 0
        while entries := core.events.wait(cursor, 120):
            cursor = entries[-1].number
            for event in [entry.event for entry in entries]:
                if isinstance(event, ModelPrepared):
                    return {"seconds": event.seconds, "nbytes": event.nbytes}
                if isinstance(event, ModelNotPrepared):
                    sys.exit(event.reason)
        sys.exit("nothing was prepared in two minutes")


def churn(models: Path) -> dict[str, float]:
    """Load models in turn, of which six fit, and unload all; memory over the beginning."""
    with serving(models, cache="off") as core:
        names = core.status.names()
        nbytes = core.models.load(names[0]).nbytes
        core.models.unload(names[0])
    begin_nbytes = anonymous_nbytes()
    with serving(models, cache="off", budget=int(6.4 * nbytes)) as core:
        most = 0
        for turn in range(CHURNED):
            core.models.load(names[turn % len(names)])
            most = max(most, anonymous_nbytes() - begin_nbytes)
        loaded = len(core.status.snapshot().models)
        for name in names:
            core.models.unload(name)
        left = anonymous_nbytes() - begin_nbytes
    return {"loaded": loaded, "books": loaded * nbytes, "most": most, "left": left}


def idle(models: Path) -> dict[str, float]:
    """The share of a processor that loaded models take which nobody asks."""
    with serving(models, load="all") as core:
        for name in core.status.names():
            width = core.status.signature(name).inputs["x"].shape[1]
            ones = np.ones((1, width), np.float32)
            core.requests.infer(InferRequest(name, {"x": Tensor("FP32", ones)}))
        began = time.process_time(), time.perf_counter()
        time.sleep(IDLE_S)
        ended = time.process_time(), time.perf_counter()
        models_loaded = len(core.status.snapshot().models)
    return {"models": models_loaded, "share": (ended[0] - began[0]) / (ended[1] - began[1])}


# ── all lives, from one process to the next ──


def in_process(what: str, models: Path, work: Path) -> dict[str, float]:
    """What one of the functions above gives, in a process and with a cache of its own."""
    command = [sys.executable, __file__, "--only", what, str(models)]
    environ = os.environ | {"XDG_CACHE_HOME": str(work / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if done.returncode:
        sys.exit(done.stderr)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def make_models(work: Path, size_mb: int) -> dict[str, Path]:
    """The same model for each way of loading it again: the folder by the way."""
    folders = {}
    for way in WAYS[1:]:
        folders[way] = work / str(size_mb) / way
        (model,) = write_models(folders[way], 1, size_mb * 10**6)
        with (model / "config.pbtxt").open("a") as config:
            config.write(f'parameters {{ key: "tier" value {{ string_value: "{way}" }} }}\n')
    return {WAYS[0]: folders["plain"], **folders}


def section(work: Path) -> str:
    """All that is measured, as a section of RESULTS.md."""
    lines, notes = [], []
    for size_mb in SIZES_MB:
        folders = make_models(work, size_mb)
        took = in_process("prepare", folders["prepared"], work)
        in_process("prepare", folders["mapped"], work)  # which has the same content
        notes.append(f"{size_mb} MB in {took['seconds']:.1f} s, {took['nbytes'] / MIB:.0f} MiB")
        lives: dict[str, list[Lifetime]] = {way: [] for way in WAYS}
        for _ in range(LIVES):
            for way, folder in folders.items():
                what = "bare" if way == WAYS[0] else "here"
                lives[way].append(in_process(what, folder, work))
        lines += [_line(size_mb, way, came) for way, came in lives.items()]
    heads = ["model", "way", "first load and answer", "again", "a run", "unload"]
    return "\n\n".join(
        [
            "## The life of a model",
            f"Made by `python benchmarks/life.py --write`, {datetime.now(tz=UTC).date()}.",
            (
                f"{processor()}, {psutil.cpu_count()} cores; medians of {LIVES} processes, {LOADS} "
                "loads each, page cache warm. Memory is what no file backs, over the beginning. "
                f"Preparing took, once: {'; '.join(notes)} of disk."
            ),
            report.markdown([*heads, "memory loaded", "memory after all"], lines),
            *together(work),
        ]
    )


def together(work: Path) -> list[str]:
    """What is measured of many models at once, in a sentence each."""
    many, few = work / "many", work / "few"
    write_models(many, 100, 2**18)
    write_models(few, 8, 100 * 10**6)
    came, idling = in_process("churn", few, work), in_process("idle", many, work)
    over = (came["most"] - came["books"]) / came["books"]
    return [
        (
            f"{CHURNED} loads of 8 models of 100 MB in turn, of which {came['loaded']:.0f} fit: at "
            f"most {over:+.1%} of what the books say of {came['loaded']:.0f}, and "
            f"{came['left'] / MIB:.0f} MiB over the beginning once all are unloaded."
        ),
        (
            f"{idling['models']:.0f} loaded models that nobody asks take {idling['share']:.1%} "
            "of a processor."
        ),
    ]


def _line(size_mb: int, way: str, lives: list[Lifetime]) -> list[str]:
    told = {key: statistics.median(one[key] for one in lives) for key in lives[0]}
    seconds = [report.LATENCY.write(told[key]) for key in ("first", "answered", "run", "unload")]
    sizes = [f"{told[key] / MIB:.0f} MiB" for key in ("loaded", "after")]
    return [f"{size_mb} MB", way, *seconds, *sizes]


ACTS = {"bare": live_bare, "here": live_here, "prepare": prepare, "churn": churn, "idle": idle}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--only"]:
        print(json.dumps(ACTS[sys.argv[2]](Path(sys.argv[3]))))
    else:
        report.publish("life", section, __doc__)
