"""A model and the folder in which what is made of it is kept, for tests of what is made."""

from __future__ import annotations

from pathlib import Path

from workbench.backends.onnx.runtime import OnnxBackend
from workbench.backends.onnx_tiers.prepared import PreparedModels
from workbench.events import EventLog
from workbench.model import ModelConfig, ModelId, ModelSource
from workbench.samples import write_models

A = ModelId("a", 1)
GIB = 2**30
MODEL_NBYTES = 2**20


class CachedModel:
    """A backend with a cache of its own, over one model of a MiB.

    *accelerated* is the backend's: whether it does on the CPU what only a GPU is to do.
    """

    accelerated: bool | None = None

    def __init__(self, root: Path) -> None:
        (folder,) = write_models(root / "models", 1, MODEL_NBYTES)
        self.path = folder / "1" / "model.onnx"
        self.cache = root / "cache"
        self.log = EventLog()
        self.begin()

    def begin(self, limit_nbytes: int = GIB) -> None:
        """Another server with the same folders."""
        self.prepared = PreparedModels(self.cache, limit_nbytes, self.log)
        self.backend = OnnxBackend(
            prepared=self.prepared, log=self.log, accelerated=self.accelerated
        )

    def source(self, **parameters: str) -> ModelSource:
        """The model, with these parameters in its configuration."""
        return ModelSource(A, ModelConfig("a", parameters=parameters), self.path)

    def entries(self) -> list[Path]:
        """What is kept, a folder each."""
        return sorted((self.cache / "entries").glob("*"))
