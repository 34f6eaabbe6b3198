"""The check of model.tar.gz: the findings of a container, before there is one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from workbench.annexes.sagemaker.code import is_code
from workbench.annexes.sagemaker.container import Container
from workbench.annexes.sagemaker.invocations import Invocation
from workbench.annexes.sagemaker.layouts import OF_MACS, find_artifact, wrapper_of
from workbench.annexes.sagemaker.names import core_name
from workbench.annexes.sagemaker.unpack import PACKING, unpack
from workbench.core import ServerCore
from workbench.errors import MemoryExhausted, UsageError, WorkbenchError
from workbench.host_memory import anonymous_nbytes
from workbench.inference import zeros_of
from workbench.model import Signature
from workbench.nbytes import show_nbytes
from workbench.settings import Settings

EXAMPLES = {".json": "application/json", ".csv": "text/csv", ".npy": "application/x-npy"}
"""The media types of the request in an artifact, ``example.json`` or such, by its suffix."""

_MODEL = "model"


@dataclass(frozen=True, slots=True)
class ArtifactFinding:
    """A finding about one *topic*; it has a *cure* if something is *wrong*, or odd."""

    topic: str
    text: str
    cure: str = ""
    wrong: bool = False

    def __str__(self) -> str:
        mark = "error" if self.wrong else "warning" if self.cure else "ok"
        cure = f": {self.cure}" if self.cure else ""
        return f"{mark:<8}{self.topic:<10}{' '.join(self.text.split())}{cure}"


def check(archive: Path, *, run_code: bool = False) -> Iterator[ArtifactFinding]:
    """The findings about *archive*, one after another; a wrong one may be the last.

    Code in it is run, in this process, only with *run_code*. The model is loaded on the CPU.
    Raises ``UsageError`` if there is no such file.
    """
    if not archive.is_file():
        raise UsageError(f"{archive} is no file: name the model.tar.gz to check")
    with TemporaryDirectory(prefix="workbench-check-") as name:
        folder = Path(name) / _MODEL
        try:
            nbytes = unpack(archive, folder)
        except (WorkbenchError, OSError) as error:
            yield ArtifactFinding("archive", str(error), PACKING, wrong=True)
            return
        packed = show_nbytes(archive.stat().st_size)
        yield ArtifactFinding(
            "size", f"{packed} packed, {show_nbytes(nbytes)} on the endpoint's disk"
        )
        for finding in (*_layout(folder), *_served(folder, run_code)):
            yield replace(finding, text=finding.text.replace(f"{folder}", "."))


def _layout(folder: Path) -> Iterator[ArtifactFinding]:
    paths = [path.relative_to(folder) for path in folder.rglob("*")]
    if any(part.startswith(OF_MACS) for path in paths for part in path.parts):
        cure = "set COPYFILE_DISABLE=1 for tar, or use workbench pack"
        yield ArtifactFinding("layout", "it holds files that macOS adds", cure)
    if (wrapper := wrapper_of(folder)) is not None:
        cure = f"most containers find no model there: tar -C {wrapper} -czf model.tar.gz ."
        yield ArtifactFinding("layout", f"all is in one folder, {wrapper}", cure)


def _served(folder: Path, run_code: bool) -> Iterator[ArtifactFinding]:
    """The findings of loading and running the model in *folder*."""
    try:
        artifact = find_artifact(str(folder))
    except WorkbenchError as error:
        yield ArtifactFinding("layout", str(error), wrong=True)
        return
    place = (artifact.code or artifact.path).relative_to(folder)
    yield ArtifactFinding("layout", f"the model is {place if place.parts else 'at the top'}")
    if artifact.code is not None and (artifact.code.parent / "requirements.txt").is_file():
        cure = "install its packages in the server's image"
        yield ArtifactFinding("packages", "code/requirements.txt is not read", cure)
    if artifact.code is not None and not run_code:
        yield ArtifactFinding("load", "its code was not run", "add --run-code if you trust it")
        return
    options = {"device": "cpu", "cache": "off", "evict": "never", "load": "explicit"}
    core = ServerCore(Settings.of(environ={}, artifact_code=run_code, **options))
    core.open()
    try:
        yield from _loaded(Container(core, {}), folder)
    finally:
        core.close()


def _loaded(container: Container, folder: Path) -> Iterator[ArtifactFinding]:
    name, before = core_name(_MODEL), anonymous_nbytes()
    try:
        container.load(_MODEL, str(folder))
    except MemoryExhausted as error:
        cure = "check it on a machine with more memory, and deploy it to one"
        yield ArtifactFinding("load", str(error), cure, wrong=True)
        return
    except WorkbenchError as error:
        yield ArtifactFinding("load", str(error), "mend the model, and pack it again", wrong=True)
        return
    yield ArtifactFinding("load", "it loads")
    signature = container.core.status.signature(name)
    yield _example(container, folder, signature)
    residents = container.core.status.snapshot().models
    nbytes = sum(each.nbytes for each in residents) + max(each.run_nbytes for each in residents)
    if is_code(signature):
        grown = anonymous_nbytes() - before
        told = "the size of its files; this process did not grow by more"
        if grown > nbytes:
            nbytes, told = grown, "this process grew by that, libraries included"
        yield ArtifactFinding("memory", f"{show_nbytes(nbytes)}: {told}")
    else:
        yield ArtifactFinding("memory", f"{show_nbytes(nbytes)} in all, a run included")


def _example(container: Container, folder: Path, signature: Signature) -> ArtifactFinding:
    """The finding of running the artifact's example request, or one made of zeros."""
    found = [path for suffix in EXAMPLES if (path := folder / f"example{suffix}").is_file()]
    what, own = (found[0].name, True) if found else ("a request of zeros", False)
    if found:
        body, media_type = found[0].read_bytes(), EXAMPLES[found[0].suffix]
    elif is_code(signature):
        return ArtifactFinding("example", "there is none", "pack it with --example FILE.json")
    else:
        body, media_type = _zeros(signature), "application/json"
    asked = container.asked(core_name(_MODEL), media_type.encode(), b"")
    try:
        reply = Invocation(container, asked, body).start().result()
    except WorkbenchError as error:
        cure = "mend one of them" if own else "pack it with --example, a request that it answers"
        return ArtifactFinding(
            "example", f"{what} gets {type(error).__name__}: {error}", cure, wrong=own
        )
    nbytes = sum(memoryview(part).nbytes for part in reply.parts)
    media_type = dict(reply.headers)[b"content-type"].decode()
    return ArtifactFinding("example", f"{what} is answered with {nbytes} bytes of {media_type}")


def _zeros(signature: Signature) -> bytes:
    inputs: list[dict[str, Any]] = []
    for spec in signature.inputs.values():
        array = zeros_of(spec)
        tensor = {"name": spec.name, "shape": array.shape, "datatype": spec.datatype}
        inputs.append({**tensor, "data": array.reshape(-1).tolist()})
    return json.dumps({"inputs": inputs}).encode()
