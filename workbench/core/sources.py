"""From a model's name to what runs it: its source in the repository, and its backend."""

from __future__ import annotations

from workbench.backends.base import Backend, Session
from workbench.core.runs import Runs
from workbench.core.warm_up import failed, request_of
from workbench.errors import MemoryExhausted, WorkbenchError
from workbench.memory.watch import MemoryWatch
from workbench.model import FunctionModel, ModelId, ModelSource
from workbench.repository import ModelRepository
from workbench.stop import Stop


class Sources:
    """Finds a model's source and its backend, for the residency."""

    def __init__(
        self, repository: ModelRepository, functions: Backend, files: Backend, runs: Runs
    ) -> None:
        self._runs = runs
        self._repository = repository
        self._functions = functions
        self._files = files

    def estimate_nbytes(self, model: ModelId) -> int:
        """An upper bound of what *model* will take. Raises ``WorkbenchError``."""
        source, backend = self.find(model)
        return backend.inspect(source).load_nbytes

    def need_nbytes(self, model: ModelId) -> int:
        """As ``estimate_nbytes``; 0 where that cannot be told."""
        try:
            return self.estimate_nbytes(model)
        except WorkbenchError:
            return 0

    def wake(self, model: ModelId) -> None:
        """Bring in what loads *model*."""
        (self._functions if model in self._repository.functions() else self._files).wake()

    def load(self, model: ModelId, stop: Stop) -> Session:
        """Load *model*, until *stop* ends that. Raises ``WorkbenchError``."""
        source, backend = self.find(model)
        return backend.load(source, stop)

    def warm_up(self, model: ModelId, session: Session, watch: MemoryWatch, stop: Stop) -> None:
        """Run *session* on the samples of its configuration. Raises ``LoadFailed``."""
        for sample in self.find(model)[0].config.warm_up:
            try:
                request = request_of(model, session.signature, sample, stop)
                for _ in range(sample.count):
                    self._runs.warm_up(model, session, request, watch)
            except MemoryExhausted:
                raise
            except WorkbenchError as error:
                raise failed(model, sample, error) from error

    def find(self, model: ModelId) -> tuple[ModelSource, Backend]:
        """Where *model* comes from, as its folder is now, and what loads it."""
        source = self._repository.find(model.name).source(model.version)
        is_function = isinstance(source.origin, FunctionModel)
        return source, self._functions if is_function else self._files
