"""Checks of this machine's installation; each finding is one line, with its cure.

``%workbench doctor`` in a notebook, ``workbench doctor`` elsewhere. Nothing is changed or sent.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any, NamedTuple

from workbench.backends.onnx import runtime
from workbench.engines import engines, installed, overwritten
from workbench.errors import WorkbenchError
from workbench.host.sockets import listen
from workbench.memory.device import GpuAbsence, cuda_numbers, gpus, host
from workbench.nbytes import show_nbytes
from workbench.version import __version__
from workbench.views.table import table_html

_EXTRAS = {
    "grpc": ("grpcio", "gRPC"),
    "images": ("opencv-python-headless", "images of another size than the model's"),
    "sklearn": ("skl2onnx", "estimators of scikit-learn as ONNX"),
    "boost": ("onnxmltools", "models of XGBoost and LightGBM as ONNX"),
    "torch": ("torch", "modules of PyTorch"),
}
_PORTS = {8000: "HTTP", 8001: "gRPC"}
_LEAST_DRIVER = 580  # for the CUDA 13 of ONNX Runtime's wheels

Installed = Callable[[str], "str | None"]


class Finding(NamedTuple):
    """A result about a *subject*; its *cure* is ``""`` where nothing is wrong."""

    subject: str
    found: str
    cure: str = ""


class Findings(list[Finding]):
    """All findings, as text for terminals and as a table for notebooks."""

    @property
    def wrong(self) -> list[Finding]:
        """The findings that have a cure."""
        return [each for each in self if each.cure]

    def __repr__(self) -> str:
        width = max((len(each.subject) for each in self), default=0)
        lines = []
        for subject, found, cure in self:
            lines.append(f"{'!' if cure else ' '} {subject:<{width}}  {found}")
            lines += [f"  {'':<{width}}  -> {cure}"] if cure else []
        return "\n".join([*lines, self._summary])

    def _repr_html_(self) -> str:
        rows = [("⚠" if each.cure else "", *each) for each in self]
        return f"{table_html(rows)}<div>{escape(self._summary)}</div>"

    @property
    def _summary(self) -> str:
        count = len(self.wrong)
        return f"{count} to mend" if count else "nothing to mend"


def examine(kernel: Any = None) -> Findings:
    """All findings; *kernel* is the kernel of a notebook."""
    return Findings(
        [
            *versions(),
            *engine(installed),
            *json(installed),
            *nvidia(gpus(), installed),
            *telemetry(os.environ),
            *ports(),
            *notebook(kernel, installed),
            *proxies(os.environ),
            *extras(installed),
        ]
    )


def versions() -> Iterator[Finding]:
    """The workbench, Python and the machine."""
    python = f"Python {platform.python_version()} in {sys.prefix}"
    yield Finding("workbench", f"{__version__}, {python}")
    memory = show_nbytes(host().total_nbytes)
    yield Finding("machine", f"{platform.platform()}, {os.cpu_count()} CPUs, {memory} of memory")


def engine(version_of: Installed) -> Iterator[Finding]:
    """ONNX Runtime: that it is there once; two of its packages overwrite each other's files."""
    there = [f"{name} {version}" for name, version in engines(version_of).items()]
    words, _, cure = overwritten(version_of).partition(": ")
    if not there:
        words, cure = "not installed", "pip install onnxruntime-gpu"
    yield Finding("ONNX Runtime", words or there[0], cure)


def json(version_of: Installed) -> Iterator[Finding]:
    """The parser of JSON: Python's own takes several times as long for large tensors."""
    if version := version_of("pysimdjson"):
        yield Finding("JSON", f"is read by simdjson {version}")
        return
    cure = "pip install pysimdjson, which needs a C++ compiler for Python 3.14; or conda install"
    yield Finding("JSON", "is read by Python's own parser, which is slow", cure)


def nvidia(found: Any, version_of: Installed) -> Iterator[Finding]:
    """The driver, the GPUs, and whether a model runs on one."""
    runtime.count_by_bus()
    driver, devices = found.driver_version(), found.find(cuda_numbers)
    if driver:
        is_old = int(driver.partition(".")[0]) < _LEAST_DRIVER
        cure = f"install a driver of {_LEAST_DRIVER} or newer, which CUDA 13 needs"
        yield Finding("NVIDIA driver", driver, cure * is_old)
    if isinstance(devices, GpuAbsence):
        words, _, cure = devices.value.partition("; ")
        if devices is GpuAbsence.NO_DRIVER:
            yield Finding("GPU", f"{words}: models run on the CPU")
        else:
            yield Finding("GPU", words, cure or "models run on the CPU until there is one")
        return
    for device in devices:
        yield Finding("GPU", f"{device}: {device.name}, {show_nbytes(device.total_nbytes)}")
    if engines(version_of):
        absence = runtime.find_cuda()
        words, _, cure = absence.partition(": ") if absence else ("a small model ran", "", "")
        yield Finding("CUDA", words, cure)
    if version_of("pynvml"):
        cure = "pip uninstall -y pynvml && pip install --force-reinstall nvidia-ml-py"
        yield Finding("NVML", "the package pynvml warns at each import", cure)


def telemetry(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Data sent to others: ONNX Runtime sends telemetry, unless a variable forbids it."""
    value = environ.get("ORT_DISABLE_TELEMETRY", "1")  # the server sets it where nobody did
    if value == "1":
        yield Finding("telemetry", "none: ONNX Runtime's is switched off, and there is no other")
    else:
        words = f"ONNX Runtime may send some, as ORT_DISABLE_TELEMETRY={value} says"
        yield Finding("telemetry", words, "unset ORT_DISABLE_TELEMETRY and restart the kernel")


def ports() -> Iterator[Finding]:
    """The ports that clients try first, free or taken; any other port does as well."""
    for port, wire in _PORTS.items():
        try:
            listen("127.0.0.1", port).close()
            yield Finding(f"port {port}", f"free, for {wire}")
        except WorkbenchError as error:
            yield Finding(f"port {port}", str(error))


def notebook(kernel: Any, version_of: Installed) -> Iterator[Finding]:
    """The kernel and the widgets, with what is known to go wrong in their versions."""
    version = version_of("ipykernel") or "0"
    found, cure = f"ipykernel {version}", "pip install 'ipykernel>=7.4'"
    if (7, 0) <= _numbers(version) < (7, 4):
        found += " leaves cells and clicks waiting when they come while it answers others"
    elif _numbers(version) < (6, 29):
        found += " is older than what is tested"
    else:
        cure = ""
        if version.startswith("6."):
            found += "; buttons wait until the running cell ends, and what a thread prints appears "
            found += "below the cell that started it"
    if kernel is None:
        found += "; this is not a notebook"
    yield Finding("kernel", found, cure)
    widgets = version_of("ipywidgets") or "0"
    is_old = _numbers(widgets) < (8, 1)
    yield Finding("ipywidgets", widgets, "pip install 'ipywidgets>=8.1'" * is_old)


def proxies(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Proxies that clients would ask for a server of this very machine."""
    proxy = environ.get("HTTP_PROXY") or environ.get("http_proxy")
    direct = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if proxy and "127.0.0.1" not in direct and direct != "*":
        cure = "export NO_PROXY=127.0.0.1,localhost"
        yield Finding("HTTP_PROXY", "clients ask a proxy for 127.0.0.1 too", cure)


def extras(version_of: Installed) -> Iterator[Finding]:
    """The optional packages, installed or not; none is needed."""
    for extra, (package, what) in _EXTRAS.items():
        lacks = f"not installed (pip install 'serving-workbench[{extra}]')"
        version = version_of(package)
        yield Finding(f"[{extra}]", f"{what}: {f'{package} {version}' if version else lacks}")


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    parts = version.split(".")[:2]
    return tuple(int(part) if part.isdigit() else 0 for part in parts)
