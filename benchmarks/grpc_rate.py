"""Our gRPC server beside a bare grpcio server around ONNX Runtime, as ratios in one run.

    python benchmarks/grpc_rate.py              measure, and print a table
    python benchmarks/grpc_rate.py --repeat 9 --calls 8000
    python benchmarks/grpc_rate.py --peers kserve mlserver    beside KServe's and MLServer's too

All serve one model on one core, one thread a run; the calls come from 16 clients on another. The
bare server parses the request, runs and writes the reply, without checks, leases or counts. The
empty one answers with bytes that are ready: that is grpcio's own time. The contestants take turns;
what counts is the median of each one's CPU time for a call, and of its rate.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnxruntime
import psutil
from contestants import CONTESTANTS, HERE, free_ports
from models import IMAGE, write_models

from workbench import Workbench
from workbench.protos import message_class

INFER = "/inference.GRPCInferenceService/ModelInfer"
REQUEST = message_class("grpc_service", "inference.ModelInferRequest")
RESPONSE = message_class("grpc_service", "inference.ModelInferResponse")
CASES = {"1×64": ("mlp", (1, 64)), "1×3×224×224": ("mean", IMAGE)}
CLIENTS, CHANNELS = 16, 4
READY_S = 120
SCRIPTS = {"kserve": ("serve_kserve.py", 2), "mlserver": ("serve_mlserver.py", 3)}
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


def body_of(model: str, shape: tuple[int, ...]) -> bytes:
    """A raw request."""
    request: Any = REQUEST(model_name=model)
    request.inputs.add(name="x", datatype="FP32", shape=shape)
    data = np.random.default_rng(0).random(shape, np.float32)
    request.raw_input_contents.append(data.tobytes())
    return bytes(request.SerializeToString())


def bare(models: Path, model: str) -> Callable[[bytes, Any], bytes]:
    """A run, and nothing else."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    path = models / model / "model.onnx"
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def infer(data: bytes, _: Any) -> bytes:
        request: Any = REQUEST.FromString(data)
        shape = tuple(request.inputs[0].shape)
        x = np.frombuffer(request.raw_input_contents[0], np.float32).reshape(shape)
        (y,) = session.run(["y"], {"x": x})
        response: Any = RESPONSE(model_name=model, model_version="1", id=request.id)
        response.outputs.add(name="y", datatype="FP32", shape=y.shape)
        response.raw_output_contents.append(y.tobytes())
        return bytes(response.SerializeToString())

    return infer


def empty(models: Path, model: str) -> Callable[[bytes, Any], bytes]:
    """An answer that is ready."""
    shape = next(shape for name, shape in CASES.values() if name == model)
    reply = bare(models, model)(body_of(model, shape), None)
    return lambda *_: reply


def serve(contestant: str, models: Path, model: str) -> None:
    """Serve until standard input ends; the first line of the output is the address."""
    if contestant == "ours":
        with Workbench(models, grpc_port=0, device="cpu", token="off") as workbench:
            workbench.load(model)
            print(workbench.grpc_url, flush=True)
            sys.stdin.read()
        return
    infer = {"bare": bare, "empty": empty}[contestant](models, model)
    server = grpc.server(ThreadPoolExecutor(CLIENTS), options=UNLIMITED)
    handlers = {"ModelInfer": grpc.unary_unary_rpc_method_handler(infer)}
    service = "inference.GRPCInferenceService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    server.stop(0).wait()


class Contestant:
    """A server that *command* starts in a process of its own, on the core *core*.

    It is at *address*, or at the one that it prints.
    """

    def __init__(self, command: list[object], core: int, address: str = "") -> None:
        here = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})  # which the child inherits
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if address else subprocess.PIPE,
            stderr=subprocess.DEVNULL if address else None,
            text=True,
        )
        os.sched_setaffinity(0, here)
        if self.process.stdout is not None:
            address = self.process.stdout.readline().strip()
        self.address = address
        with grpc.insecure_channel(address, UNLIMITED) as channel:
            grpc.channel_ready_future(channel).result(READY_S)
        self.cpu_us: list[float] = []
        self.rates: list[float] = []

    @classmethod
    def of(cls, name: str, models: Path, model: str, core: int, envs: Path) -> Contestant:
        """The contestant *name*; a peer in an environment below *envs*, made if need be."""
        if name not in SCRIPTS:
            return cls([sys.executable, __file__, "--serve", name, models, model], core)
        script, n_ports = SCRIPTS[name]
        ports = free_ports(n_ports)
        command = [CONTESTANTS[name].python(envs), HERE / "servers" / script, models, *ports]
        return cls(command, core, f"127.0.0.1:{ports[1]}")

    def measure(self, body: bytes, calls: int) -> None:
        """One turn."""
        channels = [grpc.insecure_channel(self.address, UNLIMITED) for _ in range(CHANNELS)]
        asks = [channel.unary_unary(INFER) for channel in channels]
        for ask in asks:
            ask(body)

        def client(number: int) -> None:
            for _ in range(calls // CLIENTS):
                asks[number % CHANNELS](body)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
        times = psutil.Process(self.process.pid).cpu_times
        before, began_s = times(), time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lasted_s, after = time.perf_counter() - began_s, times()
        spent_s = after.user + after.system - before.user - before.system
        self.cpu_us.append(spent_s / calls * 1e6)
        self.rates.append(calls / lasted_s)
        for channel in channels:
            channel.close()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.process.stdout is None:  # a peer, which does not look there
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def compare(models: Path, title: str, options: argparse.Namespace) -> None:
    """Measure a case, and print its rows."""
    model, shape = CASES[title]
    load_core, server_core = sorted(os.sched_getaffinity(0))[:2]
    names = ("bare", "ours", "empty", *options.peers)
    contestants = {
        name: Contestant.of(name, models, model, server_core, options.envs) for name in names
    }
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {load_core})
    calls = options.calls if model == "mlp" else max(CLIENTS, options.calls // 8)
    try:
        for _ in range(options.repeat):
            for each in contestants.values():
                each.measure(body_of(model, shape), calls)
    finally:
        os.sched_setaffinity(0, everywhere)
        for each in contestants.values():
            each.close()
    cpu = {name: statistics.median(each.cpu_us) for name, each in contestants.items()}
    rate = {name: statistics.median(each.rates) for name, each in contestants.items()}
    print(f"| {title} | CPU a call | calls/s |")
    for name in names:
        print(f"| {name} | {cpu[name]:.0f} µs | {rate[name]:.0f} |")
    pairs = zip(contestants["bare"].cpu_us, contestants["ours"].cpu_us, strict=True)
    paired = statistics.median(bare_us / ours_us for bare_us, ours_us in pairs)
    print(
        f"ours / bare: {rate['ours'] / rate['bare']:.2f}× the rate, "
        f"{cpu['bare'] / cpu['ours']:.2f}× by CPU time ({paired:.2f}× by turns); "
        f"grpcio's own: {cpu['empty'] / cpu['ours']:.0%} of ours"
    )
    for peer in options.peers:
        turns = zip(contestants["ours"].rates, contestants[peer].rates, strict=True)
        by_turns = statistics.median(ours / theirs for ours, theirs in turns)
        print(
            f"ours / {peer}: {rate['ours'] / rate[peer]:.1f}× the rate ({by_turns:.1f}× by turns)"
        )
    print()


def main() -> None:
    """Measure each case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--peers", nargs="*", choices=SCRIPTS, default=[])
    cache = Path("~/.cache/workbench-benchmarks").expanduser()
    parser.add_argument("--envs", type=Path, default=cache, help=f"the peers' ({cache})")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        contestant, models, model = options.serve
        serve(contestant, Path(models), model)
        return
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        write_models(models)
        for title in options.cases:
            compare(models, title, options)


if __name__ == "__main__":
    main()
