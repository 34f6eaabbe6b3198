"""Doubles with scripted sizes, gates and failures: what runs on threads, and the GPUs' driver."""

# ruff: noqa: N802, N815 - the doubles have the names of what they replace

import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

from workbench.backends.base import Inspection, Runnable, Session
from workbench.core import ServerCore
from workbench.core.lifecycle.load_threads import ThreadedWork
from workbench.errors import LoadFailed
from workbench.events import EventLog
from workbench.memory.watch import MemoryWatch
from workbench.model import Footprint, ModelId, ModelSource, Need, Signature, TensorSpec
from workbench.settings import Settings
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

SIGNATURE = Signature(
    "fake", {"x": TensorSpec("x", "FP32", (-1,))}, {"y": TensorSpec("y", "FP32", (-1,))}
)


class FakeSession(Runnable):
    """Answers with its input; knows whether it was closed and how often it is used now."""

    steady = True
    divisible = True

    def __init__(
        self, model: ModelId, nbytes: int, on_close: Callable[[], None], *, may_call: bool = False
    ) -> None:
        self.signature = replace(SIGNATURE)  # of its own, as every loading has
        self.origin = model.plain
        self.may_call = may_call
        self.model = model
        self.footprint = Footprint(other_nbytes=nbytes)
        self.closed = False
        self.cancelled = False
        self._on_close = on_close

    def run(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None = None,
        stop: CancellationToken | None = None,
    ) -> list[Tensor]:
        assert not self.closed, f"{self.model} ran after it was closed"
        return [inputs["x"]]

    def cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        assert not self.closed, f"{self.model} was closed twice"
        self.closed = True
        self._on_close()


@dataclass
class FakeLoader:
    """Loads what *sizes* names; *failures* fail; *gates* are waited for before a load ends.

    Loads of *unstoppable* cannot be ended once they have begun. The runs of *callers*
    may ask for other models. A file changes where its name has other *origins*.
    """

    sizes: dict[str, int]
    failures: dict[str, Exception] = field(default_factory=dict)
    gates: dict[str, threading.Event] = field(default_factory=dict)
    callers: set[str] = field(default_factory=set)
    unstoppable: set[str] = field(default_factory=set)
    origins: dict[str, object] = field(default_factory=dict)
    failing_versions: Container[int] = range(2**62)
    session_origins: dict[str, list[object]] = field(default_factory=dict)  # of the next loads
    footprints: dict[str, Footprint] = field(default_factory=dict)  # other than plain sizes
    cold: dict[str, Exception] = field(default_factory=dict)  # what fails in a first run
    loading: dict[str, int] = field(default_factory=dict)  # of *sizes*, only while loading
    loads: list[ModelId] = field(default_factory=list)
    woken: list[tuple[ModelId, int]] = field(default_factory=list)  # and how many loads before
    live_nbytes: int = 0
    peak_nbytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wake(self, model: ModelId) -> None:
        self.woken.append((model, len(self.loads)))

    def estimate(self, model: ModelId) -> Need:
        return Need(self.sizes[model.name], self.loading.get(model.name, 0))

    def load(self, model: ModelId, stop: CancellationToken) -> FakeSession:
        nbytes = self.sizes[model.name]
        self._grow(nbytes)
        if model.name in self.gates:
            listens = model.name not in self.unstoppable
            with stop.calls(self.gates[model.name].set) if listens else nullcontext():
                assert self.gates[model.name].wait(30)
            if stop.error and model.name not in self.unstoppable:
                self._grow(-nbytes)
                raise LoadFailed("the load was cancelled")
        with self._lock:
            self.loads.append(model)
        if model.name in self.failures and model.version in self.failing_versions:
            self._grow(-nbytes)
            raise self.failures[model.name]
        loading_nbytes = self.loading.get(model.name, 0)
        self._grow(-loading_nbytes)
        nbytes -= loading_nbytes
        may_call = model.name in self.callers
        session = FakeSession(model, nbytes, lambda: self._grow(-nbytes), may_call=may_call)
        session.footprint = self.footprints.get(model.name, session.footprint)
        session.origin = self.origins.get(model.name, model.plain)
        if self.session_origins.get(model.name):
            session.origin = self.session_origins[model.name].pop(0)
        return session

    def closed(self, model: ModelId, session: Session) -> None:
        """There is nothing that belongs to it."""

    def measured(self, model: ModelId, session: Session, peak_nbytes: int) -> None:
        """It knows already."""

    def warm_up(
        self, model: ModelId, session: Session, watch: MemoryWatch, stop: CancellationToken
    ) -> None:
        if model.name in self.cold:
            raise self.cold[model.name]

    def _grow(self, nbytes: int) -> None:
        with self._lock:
            self.live_nbytes += nbytes
            self.peak_nbytes = max(self.peak_nbytes, self.live_nbytes)


class FakeFiles:
    """A backend over a ``FakeLoader``."""

    def __init__(self, loader: FakeLoader) -> None:
        self.loader = loader

    def wake(self) -> None:
        """Nothing is asleep."""

    def inspect(self, source: ModelSource) -> Inspection:
        need, origin = self.loader.estimate(source.id), source.id
        return Inspection(SIGNATURE, need, self.loader.origins.get(source.id.name, origin))

    def load(self, source: ModelSource, stop: CancellationToken | None = None) -> FakeSession:
        return self.loader.load(source.id, stop or CancellationToken())


class Clock:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def fake_core(
    root: Path,
    loader: FakeLoader,
    clock: Callable[[], float] = time.monotonic,
    **settings: Any,
) -> ServerCore:
    """A core, still to be opened, of empty files in *root* that *loader* loads."""
    for name in loader.sizes:
        (root / name / "1").mkdir(parents=True, exist_ok=True)
        (root / name / "1" / "model.onnx").touch()
    given = {"budget": "100B", "device": "cpu", **settings}
    return ServerCore(Settings.of(root, environ={}, **given), files=FakeFiles(loader), clock=clock)


class Jobs(list[Callable[[], None]]):
    """A loading thread that works only when told: every interleaving can be played."""

    def submit(self, job: Callable[[], None]) -> None:
        self.append(job)

    def run_one(self, index: int = 0) -> None:
        self.pop(index % len(self))()

    def run_all(self) -> None:
        while self:
            self.run_one()


class FakeMeter:
    """Says of the memory what it is told to, *keeps* what runs took or not."""

    def __init__(self, *, keeps: bool = False) -> None:
        self.keeps = keeps
        self.nbytes: int | None = 0
        self.free_nbytes = 0  # of these, what nobody uses
        self.most_nbytes: int | None = 0

    def tidy(self) -> None:
        if self.nbytes is not None:
            self.nbytes -= self.free_nbytes
        self.free_nbytes = 0

    def read(self) -> int | None:
        return self.nbytes

    def begin_peak(self) -> int | None:
        self.most_nbytes = self.nbytes
        return self.nbytes

    def end_peak(self) -> int | None:
        return self.most_nbytes


def unwatched() -> MemoryWatch:
    """A watch for what takes no real memory."""
    return MemoryWatch("fake", FakeMeter(), EventLog())


def threaded(
    loader: FakeLoader,
    submit: Callable[[Callable[[], object]], object],
    watch: MemoryWatch | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> ThreadedWork:
    """The work of *loader*, all of it given to *submit*."""
    watch = watch or unwatched()
    return ThreadedWork(loader, watch, submit, submit, submit, clock)


UUIDS = ("GPU-aaaa1111-0000", "GPU-aaaa2222-0000", "GPU-bbbb3333-0000")

# each call of ScriptedNvml for one figure, and where the figure lands
FIGURE_CALLS = {
    "utilization": "utilization",
    "power": "power_watts",
    "power_limit": "power_limit_watts",
    "energy": "energy_joules",
    "temperature": "temperature_celsius",
    "own": "own_nbytes",
}


class ScriptedNvml:
    """Answers as NVML for the GPUs of *uuids*; a call named in *failures* raises instead.

    GPUs whose number is in *instances* are in MIG mode, and have the instances of these UUIDs;
    ``None`` is a gap. *processes* are those that every GPU tells of, with their memory.
    Handles are a GPU's number and an instance's UUID.
    """

    NVMLError = pynvml.NVMLError
    NVMLError_DriverNotLoaded = pynvml.NVMLError_DriverNotLoaded
    NVMLError_GpuIsLost = pynvml.NVMLError_GpuIsLost
    NVMLError_LibraryNotFound = pynvml.NVMLError_LibraryNotFound
    NVMLError_NoPermission = pynvml.NVMLError_NoPermission
    NVMLError_NotFound = pynvml.NVMLError_NotFound
    NVMLError_NotSupported = pynvml.NVMLError_NotSupported
    NVML_DEVICE_MIG_ENABLE = pynvml.NVML_DEVICE_MIG_ENABLE
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    nvmlMemory_v2 = pynvml.nvmlMemory_v2

    def __init__(
        self,
        uuids: tuple[str, ...] = UUIDS,
        *,
        instances: Mapping[int, tuple[str | None, ...]] | None = None,
        processes: Mapping[int, int | None] | None = None,
        **failures: int,
    ) -> None:
        self.uuids = uuids
        self.instances = instances or {}
        self.processes = processes or {}
        self.failures = failures

    def _fail(self, call: str) -> None:
        if call in self.failures:
            raise pynvml.NVMLError(self.failures[call])

    def _figure(self, call: str, handle: int | str) -> int:
        """The GPU's number, which its figures are made of; instances have none."""
        self._fail(call)
        if isinstance(handle, str):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return handle

    def nvmlInit(self) -> None:
        self._fail("init")

    def nvmlDeviceGetCount(self) -> int:
        self._fail("count")
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        self._fail("handle")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int | str:
        self._fail("by_uuid")
        return uuid if uuid.startswith("MIG-") else self.uuids.index(uuid)

    def nvmlDeviceGetName(self, handle: int | str) -> str:
        self._fail("name")
        if isinstance(handle, int):
            return f"GPU model {handle}"
        (gpu,) = [number for number, uuids in self.instances.items() if handle in uuids]
        return f"GPU model {gpu} MIG"

    def nvmlDeviceGetUUID(self, handle: int | str) -> str:
        self._fail("uuid")
        return handle if isinstance(handle, str) else self.uuids[handle]

    def nvmlDeviceGetMemoryInfo(
        self, handle: int | str, version: int | None = None
    ) -> SimpleNamespace:
        self._fail("memory")
        total, used, reserved = 20, 4, 1
        if isinstance(handle, int):
            self._fail("whole_memory")
            total, used, reserved = (n * (handle + 1) for n in (100, 7, 1))
        if version is None:  # tells no two kinds of used memory apart
            return SimpleNamespace(total=total, used=used + reserved)
        self._fail("memory_v2")
        return SimpleNamespace(total=total, used=used, reserved=reserved)

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        self._fail("mig_mode")
        return [int(handle in self.instances), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:
        return len(self.instances[handle])

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, index: int) -> str:
        self._fail("instance")
        uuid = self.instances[handle][index]
        if uuid is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: int | str) -> SimpleNamespace:
        return SimpleNamespace(gpu=50 + self._figure("utilization", handle), memory=1)

    def nvmlDeviceGetPowerUsage(self, handle: int | str) -> int:
        return 100_500 + 1000 * self._figure("power", handle)

    def nvmlDeviceGetPowerManagementLimit(self, handle: int | str) -> int:
        return 700_000 + 1000 * self._figure("power_limit", handle)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int | str) -> int:
        return 1_000_250 + 1000 * self._figure("energy", handle)

    def nvmlDeviceGetTemperature(self, handle: int | str, sensor: int) -> int:
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return 40 + self._figure("temperature", handle)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: int | str) -> list[SimpleNamespace]:
        self._fail("own")
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=nbytes) for pid, nbytes in self.processes.items()
        ]


class FixedPace:
    """The pace of a model whose runs are expected to take *seconds*, whatever they took."""

    is_unknown = False

    def __init__(self, seconds: float) -> None:
        self.least_s = seconds

    def observe(self, nbytes: int, seconds: float) -> None:
        """Learn nothing."""

    def expected_s(self, nbytes: int) -> float:
        return self.least_s
