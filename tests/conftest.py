"""What every test may use."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from workbench.core.inference import direct, ensembles
from workbench.tensor import DATATYPES

if TYPE_CHECKING:
    from workbench import Workbench

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# OpenMP's threads spin while they wait for each other: where the cores are busy, as with pytest -n,
# a small fit of scikit-learn, XGBoost or LightGBM would take ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell has its background jobs ignore SIGINT, and so does what they start: here Ctrl-C is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _name in [name for name in os.environ if name.startswith("WORKBENCH_")]:
    del os.environ[_name]  # the settings of whoever runs the tests are not the tests'

os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="workbench-tests-")  # nor is the cache
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# No test asks a host outside by TLS; httpx would read the system's certificates, for 30 ms, in each
# call that makes a client.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = os.environ["XDG_CACHE_HOME"]

# httpx gives an answer 5 s by default: too few where many processes share the cores.
for _name in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, _name, 60.0)

# A run that the system interrupts for 0.2 s is no stall here: afterwards the model would run
# elsewhere than the tests say. Tests of stalls make each run one.
for _module in (direct, ensembles):
    _module.STALL_S = 60.0

ROOT = Path(__file__).parent.parent


# What takes longest: if it began last, one process would end long after the other.
_FIRST = {
    "browser", "fuzz", "notebook", "test_docs.py", "test_one_kernel.py", "test_processes.py",
    "test_sample_models.py", "test_schemathesis.py",
}  # fmt: skip


def pytest_configure() -> None:
    """Have hypothesis make the same examples in every run; ``make fuzz`` takes the other profile.

    Its plugin comes afterwards, with the profile of the command line.
    """
    from hypothesis import settings  # its plugin must be known to pytest first

    settings.register_profile("same", derandomize=True, deadline=None, max_examples=200)
    settings.register_profile("random", deadline=None, max_examples=5000)
    settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    items.sort(key=lambda item: _FIRST.isdisjoint(item.path.parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have the garbage collector pass over the modules and the tests of this run.

    They are a million objects, which stay to its end: to look at them again and again took a
    quarter of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """All tests of a file run in one process, and those of tests/browser, which share a browser."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return "tests/browser" if file.startswith("tests/browser/") else file

    config.option.loadscopereorder = False  # else files with few tests come last
    return ByFile(config, log)


TEARDOWN_S = 120.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """End the process if what a test began does not end, and say where it waits.

    After a failure, pytest-timeout stops its clock: the run would never end. Until then its clock
    is enough; ours is a thread for each test.
    """
    if not item.session.testsfailed:
        return (yield)
    told = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(TEARDOWN_S, exit=True, file=told)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def sample_models() -> Path:
    """The committed repository of small real models."""
    return ROOT / "sample_models"


@pytest.fixture(scope="session")
def held_out(sample_models: Path) -> dict[str, Any]:
    """The data that no sample model was trained on."""
    with np.load(sample_models / "held_out.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


@pytest.fixture(scope="session")
def server(sample_models: Path) -> Iterator[Workbench]:
    """A server of the sample models and some functions, on both wires, for tests that only read."""
    from workbench import Workbench

    workbench = Workbench(sample_models, max_request="1MiB", grpc_port=0)
    register_functions(workbench)
    with workbench:
        yield workbench


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that ends its sending while it waits for an answer is gone at once.

    Else it has a second, which ``tests/host/test_protocol.py`` checks by a clock of its own.
    """
    monkeypatch.setattr("workbench.host.protocol._GRACE_S", 0.0)


def register_functions(workbench: Workbench) -> None:
    """An echo for every datatype, two of several inputs, and one that fails."""
    for datatype in DATATYPES:
        workbench.register(
            lambda x: x,
            name=f"echo_{datatype.lower()}",
            inputs={"x": (datatype, [-1])},
            outputs={"y": (datatype, [-1])},
        )
    workbench.register(
        lambda a, b: (a + b, a - b),
        name="two",
        inputs={"a": ("FP32", [-1, 2]), "b": ("FP32", [-1, 2])},
        outputs={"sum": ("FP32", [-1, 2]), "difference": ("FP32", [-1, 2])},
    )
    workbench.register(
        lambda x: x, name="scalar", inputs={"x": ("FP64", [])}, outputs={"y": ("FP64", [])}
    )

    @workbench.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])})
    def fails(x: Any) -> Any:
        raise ValueError("on purpose")


@pytest.fixture
def client(server: Workbench) -> Iterator[httpx.Client]:
    """An ordinary HTTP client of ``server``."""
    with httpx.Client(base_url=server.url) as client:
        yield client
