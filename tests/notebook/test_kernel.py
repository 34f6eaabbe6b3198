"""The server inside a real, headless kernel."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import httpx
import pytest
from jupyter_client.manager import KernelManager

from workbench.settings import declared

START = "%load_ext workbench\nwb = %workbench start sample_models\nprint(wb.url)"


class Kernel:
    """A kernel, and what its cells printed."""

    def __init__(self, folder: Path) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(folder))
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def run(self, code: str) -> str:
        """Run a cell; its text output. An error of the cell fails the test."""
        texts: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                texts.append(content["text"])
            elif message["msg_type"] in ("execute_result", "display_data"):
                texts.append(content["data"]["text/plain"])

        reply = self.client.execute_interactive(code, output_hook=hear, timeout=120)
        content = reply["content"]
        assert content["status"] == "ok", "\n".join(content.get("traceback", []))
        return "".join(texts)

    def begin(self, code: str) -> str:
        """Begin a cell that does not end by itself; return once its first line is printed."""
        begun = f"print('begun', flush=True)\n{code}"
        message: str = self.client.execute(begun, stop_on_error=False)
        while True:
            heard = self.client.get_iopub_msg(timeout=120)
            ours = heard["parent_header"].get("msg_id") == message
            if ours and heard["msg_type"] == "stream":
                return message

    def interrupt(self, message: str) -> None:
        """Interrupt the cell that was begun, which must get its KeyboardInterrupt.

        Python misses a signal that comes just as its main thread begins to wait for a lock; a
        person would press the button again.
        """
        self.manager.interrupt_kernel()
        while True:
            try:
                reply = self.client.get_shell_msg(timeout=30)
            except Empty:
                self.manager.interrupt_kernel()
                continue
            if reply["parent_header"]["msg_id"] == message:
                assert reply["content"]["ename"] == "KeyboardInterrupt"
                return

    def start(self) -> str:
        """Start a server in it; its url."""
        return self.run(START).strip().splitlines()[-1]

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def shared(sample_models: Path) -> Iterator[Kernel]:
    kernel = Kernel(sample_models.parent)
    yield kernel
    kernel.close()


@pytest.fixture
def kernel(shared: Kernel) -> Iterator[Kernel]:
    """A kernel without a server; the tests that end it make their own."""
    yield shared
    shared.run("%reload_ext workbench\n%workbench stop")


@pytest.fixture
def own_kernel(sample_models: Path) -> Iterator[Kernel]:
    kernel = Kernel(sample_models.parent)
    yield kernel
    kernel.close()


def is_live(url: str) -> bool:
    return httpx.get(f"{url}/v2/health/live").status_code == 200


def port_is_free(url: str) -> bool:
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True


def test_cells_answer_and_print_nothing_more(kernel: Kernel) -> None:
    """A cell starts the server, other processes reach it, and no server thread prints."""
    url = kernel.start()
    assert is_live(url)
    assert httpx.get(f"{url}/nothing").status_code == 404
    assert kernel.run("pass") == ""


def test_a_busy_cell_does_not_stop_the_server(kernel: Kernel) -> None:
    """While a cell computes, requests are answered, those of SageMaker's platform too."""
    url = kernel.start()
    busy = kernel.begin("while True: pass")
    assert is_live(url)
    for path in ("/ping", "/models"):
        assert httpx.get(f"{url}{path}").status_code == 200
    kernel.interrupt(busy)


def test_interrupt_leaves_the_server_running(kernel: Kernel) -> None:
    """An interrupted cell gets its KeyboardInterrupt, and the server goes on."""
    url = kernel.start()
    kernel.interrupt(kernel.begin("import threading; threading.Event().wait()"))
    assert is_live(url)


def test_await_still_works(kernel: Kernel) -> None:
    """The kernel's own event loop is left alone."""
    kernel.start()
    assert kernel.run("import asyncio; print(await asyncio.sleep(0, 'fine'))") == "fine\n"


def test_settings_are_completed(kernel: Kernel) -> None:
    """Tab completes each keyword of a workbench, in a call that is not closed yet."""
    kernel.run("from workbench import Workbench")
    for option in declared():
        code = f"wb = Workbench('models', {option.name[:-1]}"
        reply = kernel.client.complete(code, reply=True, timeout=120)
        assert f"{option.name}=" in reply["content"]["matches"]


SLOW = """import pathlib, time
from workbench.core.lifecycle.loader import Sources
def slow(*_):
    while not pathlib.Path({go!r}).exists():
        time.sleep(0.01)
whole, Sources._run_samples = Sources._run_samples, slow
try:
    model = %workbench load wine
finally:
    Sources._run_samples = whole"""


def test_a_slow_load_shows_its_progress(kernel: Kernel, tmp_path: Path) -> None:
    """A bar says what the load does, and is taken away at its end."""
    kernel.start()
    kernel.run("_ = wb.unload('wine')")
    go, shown = tmp_path / "go", []

    def hear(message: dict[str, Any]) -> None:
        if message["msg_type"] in ("display_data", "update_display_data"):
            shown.append(message["content"]["data"])
            if "loading wine: warming up" in shown[-1].get("text/html", ""):
                go.touch()

    cell = SLOW.format(go=str(go))
    reply = kernel.client.execute_interactive(cell, output_hook=hear, timeout=120)
    assert reply["content"]["status"] == "ok"
    assert go.exists()
    assert shown[-1] == {"text/plain": "", "text/html": ""}


def test_logging_is_left_alone(kernel: Kernel) -> None:
    """Starting a server changes neither the root logger nor the signal handlers."""
    look = (
        "import logging, signal\n"
        "print(logging.root.level, logging.root.handlers, signal.getsignal(signal.SIGTERM))"
    )
    before = kernel.run(look)
    kernel.start()
    assert kernel.run(look) == before


def test_kernel_restart_frees_the_port(own_kernel: Kernel) -> None:
    """After a restart of the kernel the port is free, and a server starts again."""
    url = own_kernel.start()
    own_kernel.manager.restart_kernel(now=False)
    own_kernel.client.wait_for_ready(timeout=120)
    assert port_is_free(url)
    assert is_live(own_kernel.start())


def test_kernel_shutdown_is_clean(own_kernel: Kernel) -> None:
    """A kernel with a server, loaded models and requests on the way ends with status 0."""
    url = own_kernel.start()
    own_kernel.run("_ = wb.load('digits')")
    stop = threading.Event()
    body = {"inputs": [{"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [0] * 64}]}

    def ask() -> None:
        while not stop.is_set():
            try:
                httpx.post(f"{url}/v2/models/digits/infer", json=body)
            except httpx.HTTPError:
                return

    asking = threading.Thread(target=ask)
    asking.start()
    provisioner = own_kernel.manager.provisioner
    process: Any = getattr(provisioner, "process")  # noqa: B009  # typed on one subclass only
    own_kernel.client.shutdown()
    assert process.wait(timeout=60) == 0
    stop.set()
    asking.join(30)
    assert port_is_free(url)


def test_the_dashboard_outlives_interrupts(kernel: Kernel) -> None:
    """Cells that are interrupted in the middle of anything end alone: it is drawn on."""
    url = kernel.start()
    kernel.run("board = wb.dashboard(); board")
    for busy in (
        "while True: board.draw()",
        "while True: wb.load('wine'); wb.unload('wine')",
        "while True: wb.infer('wine', [[0.0] * 13])",
        "while True: wb.budget = '64MiB'; wb.evict = 'cost'; wb.keep_alive = 3600",
        "while True: wb.snapshot(); wb.models; wb.events",
    ):
        kernel.interrupt(kernel.begin(busy))
    assert is_live(url)
    assert (
        kernel.run(
            "print(board._feed._thread.is_alive(), not wb._core.status.snapshot().models or "
            "max(m.leases for m in wb._core.status.snapshot().models))"
        ).split()[0]
        == "True"
    )
    kernel.run("_ = wb.infer('wine', [[0.0] * 13]); board.draw()")
    told = kernel.run(
        "ready = [model.id.name for model in wb.models if model.state.name == 'READY']\n"
        "shown = f'{len(ready)} of {len(wb.names)}<'\n"
        "print(shown in board._live.value or (ready, board._live.value), board._told)"
    )
    assert told == "True set()\n"


@pytest.mark.parametrize(
    ("busy", "asks"),
    [
        ("while True: wb.plan()._repr_mimebundle_()", False),
        ("wb.bench('wine', clients=1, seconds=60)", True),
    ],
    ids=["plan", "bench"],
)
def test_a_measurement_that_is_interrupted(kernel: Kernel, busy: str, *, asks: bool) -> None:
    """Only the cell ends: no process is left, and all works."""
    url = kernel.start()
    look = "print(len(psutil.Process().children()))"
    before = kernel.run(
        "import psutil\n"
        "for _ in range(99):\n"
        "    _ = wb.infer('wine', [[0.0] * 13]), wb.infer('digits', [[0.0] * 64])\n" + look
    )

    def answered() -> int:
        statistics = httpx.get(f"{url}/v2/models/wine/stats").json()
        return int(statistics["model_stats"][0]["inference_count"])

    message, count = kernel.begin(busy), answered()
    while asks and answered() < count + 100:  # the process sends requests
        assert is_live(url)
    kernel.interrupt(message)
    assert kernel.run(look) == before
    assert "99 % of these requests warm" in kernel.run("print(wb.plan())")
    assert "elements/s" in kernel.run("print(wb.bench('wine', clients=1, seconds=0.1))")


def test_a_snapshot_is_a_picture_for_files(kernel: Kernel) -> None:
    """It takes the place of the live dashboard; without one, it is the output of its own cell."""
    kernel.start()
    heard: list[dict[str, Any]] = []

    def hear(message: dict[str, Any]) -> None:
        heard.append(message)

    ask = kernel.client.execute_interactive
    for cell in ("%workbench dashboard", "%workbench snapshot", "%workbench snapshot"):
        ask(cell, output_hook=hear, timeout=120)
    shown = [
        m["content"] for m in heard if m["msg_type"] in ("display_data", "update_display_data")
    ]
    live, replaced, alone = shown
    assert replaced["transient"] == live["transient"]
    for picture in (replaced, alone):
        assert set(picture["data"]) == {"text/html", "text/plain"}
        assert "as it was at " in picture["data"]["text/html"]
        assert "data:image/svg+xml;base64," in picture["data"]["text/html"]
    texts = [m["content"]["text"] for m in heard if m["msg_type"] == "stream"]
    assert texts == ["the dashboard is a picture now: %workbench dashboard shows a live one\n"]
    assert kernel.run("print(wb.is_running)").strip() == "True"
