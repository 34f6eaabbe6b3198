"""The artifacts below a prefix, a local folder in S3's place, and their copies on disk."""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from workbench.annexes.sagemaker.errors import DiskFull
from workbench.annexes.sagemaker.unpack import PACKING, unpack
from workbench.errors import InvalidRequest, ModelNotFound
from workbench.own_folder import OwnFolder

_ENDING = re.compile(r"\.(tar\.gz|tgz)$")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")  # containers may take nothing else
_READABLE = 40  # characters of the target, the last ones


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """The present content of *target*, a TargetModel: a folder or an archive at *path*.

    *model_name* is its name in the container; other contents have another name.
    """

    target: str
    path: Path
    model_name: str
    nbytes: int


class ArtifactStore:
    """The folders and tar.gz files below *prefix*. Archives are unpacked once a content.

    *stops* says whether the server is to stop: then no archive is unpacked any further.
    """

    def __init__(
        self,
        prefix: Path,
        *,
        follow_links: bool = False,
        stops: Callable[[], bool] = lambda: False,
    ) -> None:
        self._prefix = prefix
        self._stops = stops
        self._follow_links = follow_links
        self._lock = threading.Lock()
        self._root: OwnFolder | None = None

    def find(self, target: str) -> StoredArtifact:
        """The artifact that *target* names. Raises ``InvalidRequest``, ``ModelNotFound``."""
        path = PurePosixPath(target.lstrip("/"))
        if not path.parts or ".." in path.parts or "\0" in target:
            raise InvalidRequest(f"TargetModel {target[:200]!r} must be a path below the prefix")
        place = self._prefix / path
        try:
            is_inside = place.resolve().is_relative_to(self._prefix.resolve())
            if not self._follow_links and not is_inside:
                raise self._missing(target)
            stamp, nbytes = _stamp(place)
        except (OSError, ValueError, RuntimeError):  # no file's name; the last of links in a circle
            raise self._missing(target) from None
        return StoredArtifact(str(path), place, _model_name(str(path), stamp), nbytes)

    def _missing(self, target: str) -> ModelNotFound:
        hint = ""
        if "://" in target:
            hint = " TargetModel is a path below the prefix, not a URI."
        elif there := next(filter(self._is_there, (f"{target}.tar.gz", f"{target}.tgz")), None):
            hint = f" There is {there}."
        return ModelNotFound(
            f"Failed to download model data (prefix: {self._prefix}, key: {target[:200]}). "
            f"Please ensure that there is an object located at the URL.{hint}"
        )

    def _is_there(self, target: str) -> bool:
        try:
            return (self._prefix / target.lstrip("/")).is_file()
        except (OSError, ValueError):  # such as a name that no file can have
            return False

    def fetch(self, artifact: StoredArtifact) -> tuple[Path, int]:
        """The folder of the model, and the bytes that had to be unpacked for it.

        One thread at a time fetches a model. Raises ``InvalidRequest`` for an archive that is not
        unpacked, ``DiskFull``, or ``ServerNotRunning`` where the server is to stop; then nothing of
        it stays on the disk.
        """
        if artifact.path.is_dir():
            return artifact.path, 0
        if not (artifact.path.is_file() and _ENDING.search(artifact.path.name)):
            raise InvalidRequest(f"{artifact.target} is neither a tar.gz file nor a folder")
        try:
            with self._lock:
                root = self._root = self._root or OwnFolder()
        except OSError as error:
            raise DiskFull(
                f"no temporary folder can be made ({error.strerror}): let TMPDIR be a folder of a "
                "disk with room"
            ) from error
        folder = Path(root.name) / artifact.model_name / "model"  # as on the platform
        if folder.exists():
            return folder, 0
        try:
            return folder, unpack(artifact.path, folder, self._stops)
        except BaseException as error:
            self.discard(artifact.model_name)
            if isinstance(error, InvalidRequest):
                raise InvalidRequest(f"{error}: {PACKING}") from error
            raise

    def has_copy(self, model_name: str) -> bool:
        """True if the model has a copy on disk."""
        return self._root is not None and (Path(self._root.name) / model_name).exists()

    def discard(self, model_name: str) -> None:
        """Remove the copy of a model that nobody reads, if there is one."""
        if self._root is not None:
            shutil.rmtree(Path(self._root.name) / model_name, ignore_errors=True)

    def close(self) -> None:
        root, self._root = self._root, None
        if root is not None:
            root.close()


def _model_name(target: str, stamp: object) -> str:
    """The name of *target* in the container: readable, and another one for other contents.

    On the platform it is a hash, which nobody can map back to an artifact.
    """
    digest = hashlib.sha256(repr((target, stamp)).encode("utf-8", "replace")).hexdigest()
    readable = _NOT_IN_NAMES.sub("-", _ENDING.sub("", target))[-_READABLE:].strip("-.")
    return f"{readable}-{digest[:16]}" if readable else digest[:16]


def _stamp(place: Path) -> tuple[list[tuple[str, int, int]], int]:
    """A value that changes with the content of *place*, and its bytes. Raises ``OSError``."""
    stat = place.stat()
    if not place.is_dir():
        return [("", stat.st_mtime_ns, stat.st_size)], stat.st_size
    files = sorted(path for path in place.rglob("*") if path.is_file())
    made = [path for path in files if path.parent.name != "__pycache__"]  # by people, not Python
    stats = [(str(path.relative_to(place)), path.stat()) for path in made]
    rows = [(name, each.st_mtime_ns, each.st_size) for name, each in stats]
    return rows, sum(nbytes for _, _, nbytes in rows)
