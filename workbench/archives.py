"""Writes model.tar.gz: equal models make equal archives, byte by byte."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from workbench.backends.onnx.header.file import read_onnx_file
from workbench.backends.onnx.zip_maps import with_tensors
from workbench.errors import UsageError

ENDINGS = ".tar.gz", ".tgz"
"""The endings of the names of archives."""
_COMPRESSION = 6  # 9 makes a model of trees 1 % smaller, and takes nine times as long

ArchiveMembers = Mapping[str, Path | bytes]
"""Files, or their contents, by their names in the archive."""


def write_archive(members: ArchiveMembers, out: Path) -> None:
    """Write *members* to *out*, a tar.gz, in place of an old one.

    Raises ``UsageError`` for a folder and another ending, ``OSError``.
    """
    if out.is_dir():
        raise UsageError(f"{out} is a folder: name the file to write, such as {out}/model.tar.gz")
    if not out.name.endswith(ENDINGS):
        stem = out.with_suffix("") if out.suffix in {".zip", ".tar", ".gz"} else out
        raise UsageError(f"{out} must end in {' or '.join(ENDINGS)}, such as {stem}.tar.gz")
    part = out.with_name(f".{out.name}.part")
    try:
        with (
            part.open("wb") as file,
            gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w|") as tar,
        ):
            for name, content in sorted(members.items()):
                _add(tar, name, content)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def _add(tar: tarfile.TarFile, name: str, content: Path | bytes) -> None:
    info = tarfile.TarInfo(name)
    info.mode = 0o644
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as source:
        info.size = source.seek(0, io.SEEK_END)
        source.seek(0)
        tar.addfile(info, source)


def onnx_members(file: Path, version: int = 1) -> ArchiveMembers:
    """The model in *file* as that *version*, with the files that hold its weights.

    Other servers have no ZipMaps either: its outputs are tensors.
    """
    header = read_onnx_file(file)
    beside = header.external_files
    return {
        f"{version}/model.onnx": with_tensors(file.read_bytes()) if header.zip_maps else file,
        **{f"{version}/{path.relative_to(file.parent).as_posix()}": path for path in beside},
    }
