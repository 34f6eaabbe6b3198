"""The packages of ONNX Runtime: that one of them is installed, and not several over each other."""

from __future__ import annotations

from collections.abc import Callable

ENGINES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino")
"""All of them write the same files, so that the one that was installed last overwrites others."""


def installed(package: str) -> str | None:
    """The version of an installed *package*, or ``None``."""
    from importlib import metadata  # it takes its time

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def engines(version_of: Callable[[str], str | None] = installed) -> dict[str, str]:
    """The packages of ONNX Runtime that are installed, with their versions."""
    return {name: version for name in ENGINES if (version := version_of(name))}


def overwritten(version_of: Callable[[str], str | None] = installed) -> str:
    """The message if several are installed, with the command that repairs it; else ``""``."""
    there = engines(version_of)
    if len(there) < 2:
        return ""
    words = " and ".join(f"{name} {version}" for name, version in there.items())
    wanted = "onnxruntime-gpu" if "onnxruntime-gpu" in there else "onnxruntime"
    cure = f"pip uninstall -y {' '.join(there)} && pip install {wanted}"
    return f"{words} are installed over each other, and may fail or miss the GPU: {cure}"
