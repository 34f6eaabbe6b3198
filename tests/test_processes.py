"""Interrupts, forks and exits: what only a process of its own can show."""

import json
import textwrap
from pathlib import Path
from typing import Any

from other_process import python

SAMPLES = Path(__file__).parent.parent / "sample_models"

BEGIN = """
import atexit, json, os, signal, sys, threading, time
def tell(**told):
    print(json.dumps(told), flush=True)
import numpy as np
from workbench import Workbench
image = np.zeros((1, 64), np.float32)
"""


def run(code: str) -> list[dict[str, Any]]:
    """What a script told, line by line; it must end well."""
    script = BEGIN + textwrap.dedent(code)
    return [json.loads(line) for line in python(script, SAMPLES).stdout.splitlines()]


def test_interrupts_leave_no_lease() -> None:
    """However often a cell that infers is interrupted, no lease is left behind.

    A stop that is interrupted goes on, and a second one waits for it.
    """
    (told,) = run("""
        before = sys.getswitchinterval()
        wb = Workbench(sys.argv[1]).start()
        wb.load("digits")
        interrupted = 0
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        while interrupted < 300:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001 + interrupted * 1e-6)
                while True:
                    wb.infer("digits", image)
            except KeyboardInterrupt:
                interrupted += 1
        wb.unload("digits")
        models = wb.snapshot().models
        wb.load("digits")
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            wb.stop()
            threading.Event().wait(30)
        except KeyboardInterrupt:
            pass
        wb.stop()
        left = [t.name for t in threading.enumerate() if t.name == "workbench-http"]
        restored = sys.getswitchinterval() == before
        tell(models=models, running=wb.is_running, left=left, restored=restored)
        """)
    assert told == {"models": [], "running": False, "left": [], "restored": True}


def test_an_interrupt_anywhere_leaves_nothing_locked() -> None:
    """Wherever in Python code an interrupt comes, the next requests are answered."""
    (told,) = run("""
        import inspect
        wb = Workbench(sys.argv[1]).start()
        wb.load("digits")
        @wb.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])})
        def double(x):
            return 2 * x
        @wb.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])})
        def twice(x):
            yield x
            yield x
        x = np.ones(1, np.float32)
        asks = [
            lambda: wb.infer("digits", image),
            lambda: wb.infer("double", x),
            lambda: list(wb.stream("twice", x)),
        ]

        def interrupted(ask, step):  # whether *ask* took as many steps
            left = [step]
            def trace(frame, event, arg):
                # where Python looks for signals, which it does not where a generator yields
                yields = event == "return" and frame.f_code.co_flags & inspect.CO_GENERATOR
                left[0] -= event in ("call", "return") and not yields
                if not left[0]:
                    raise KeyboardInterrupt
                return trace
            sys.settrace(trace)
            try:
                ask()
            except KeyboardInterrupt:
                return True
            finally:
                sys.settrace(None)
            return False

        steps = []
        for ask in asks:
            ask()
            step = 1
            while interrupted(ask, step):
                ask()
                step += 1
            steps.append(step)
        while any(model.leases for model in wb.snapshot().models):
            pass  # threads end the streams
        for name in ("digits", "double", "twice"):
            wb.unload(name)
        tell(enough=min(steps) > 20, models=wb.snapshot().models)
        wb.stop()
        """)
    assert told == {"enough": True, "models": []}


def test_exit_stops_the_server() -> None:
    """A process that ends without a stop stops its server, and waits for no run that does not end.

    When ONNX Runtime was imported, its telemetry was off, and CUDA's GPUs counted as the driver's.
    """
    told = run("""
        class Watch:
            def find_spec(self, name, path=None, target=None):
                if name == "onnxruntime":
                    tell(**{name: os.environ.get(name) for name in names})
        names = "ORT_DISABLE_TELEMETRY", "CUDA_DEVICE_ORDER"
        for name in names:
            os.environ.pop(name, None)
        sys.meta_path.insert(0, Watch())
        atexit.register(lambda: tell(running=wb.is_running))  # before ours, so called after it
        wb = Workbench(sys.argv[1])
        inside = threading.Event()
        @wb.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])})
        def endless(x):
            inside.set()
            threading.Event().wait()
        wb.start()
        wb.load("digits")
        threading.Thread(target=lambda: wb.infer("endless", [1.0]), daemon=True).start()
        inside.wait()
        """)
    before_the_import = {"ORT_DISABLE_TELEMETRY": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert told == [before_the_import, {"running": False}]


def test_exit_in_the_middle_of_runs() -> None:
    """A process that ends while models run ends cleanly."""
    run("""
        import contextlib
        from workbench.errors import WorkbenchError
        wb = Workbench(sys.argv[1]).start()
        big = np.zeros((5000, 1, 8, 8), np.float32)
        started = threading.Semaphore(0)
        def ask():
            # a thread that prints as Python shuts down may end the process, whatever it prints
            with contextlib.suppress(WorkbenchError):
                while True:
                    started.release()
                    wb.infer("digits_conv", big)
        wb.load("digits_conv")
        for _ in range(3):
            threading.Thread(target=ask, daemon=True).start()
        for _ in range(6):
            started.acquire()
        """)


def test_a_forked_child_has_no_server() -> None:
    """A request in it says so, and how to ask the parent's, which alone has the threads.

    It ends by itself.

    The files that came with a load stay when it does.
    """
    told = run("""
        import warnings
        from workbench.errors import ServerNotRunning
        warnings.simplefilter("ignore")
        wb = Workbench(sys.argv[1], threads=2).start()
        wb.infer("digits_conv", image.reshape(1, 1, 8, 8))
        with open(os.path.join(sys.argv[1], "wine", "1", "model.onnx"), "rb") as file:
            content = file.read()
        wb._core.models.load_all("mine", "{}", {"1/model.onnx": content})
        path = wb._core.status.source("mine").origin
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # which would end a wait
            try:
                wb.infer("digits_conv", image.reshape(1, 1, 8, 8))
            except ServerNotRunning as error:
                sys.exit(7 if wb.is_running or "workbench.connect(url)" not in str(error) else 0)
            os._exit(7)
        status = os.waitpid(child, 0)[1]
        tell(status=status, alive=wb.is_running, there=os.path.exists(path))
        wb.stop()
        tell(there=os.path.exists(path))
        """)
    assert told == [{"status": 0, "alive": True, "there": True}, {"there": False}]
