"""From the names that clients use to the models that answer."""

from __future__ import annotations

import threading
from collections import Counter

from workbench.model import ModelId
from workbench.repository import ModelRepository

_NONE: dict[int | None, ModelId] = {}


class Names:
    """Looks names up in *repository*, and remembers what it found, for any thread.

    Of a model whose files changed it knows which edition answers.
    """

    def __init__(self, repository: ModelRepository) -> None:
        self._repository = repository
        self._found: dict[str, dict[int | None, ModelId]] = {}
        self._editions: dict[ModelId, int] = {}  # that answer,
        self._last: Counter[ModelId] = Counter()  # and the last that there was
        self._lock = threading.Lock()

    def known(self, name: str, version: int | None) -> ModelId | None:
        """The model of that name, if it was found before; reads no file."""
        return self._found.get(name, _NONE).get(version)

    def find(self, name: str, version: int | None = None) -> ModelId:
        """The model of that name, of its default version if ``None``.

        Reads the model's folder the first time. Raises ``ModelNotFound``,
        ``VersionNotFound``, ``LoadFailed``.
        """
        model = self.known(name, version)
        if model is None:
            found = self._found.setdefault(name, {})
            model = self.look(name, version)
            if self._found.get(name) is found:  # else it is to be looked up anew
                found[version] = model
                if self.current(model) != model:  # it was replaced just now
                    model = found[version] = self.current(model)
        return model

    def look(self, name: str, version: int | None = None) -> ModelId:
        """As ``find``, by the folder as it is now; that is not remembered."""
        return self.current(self._repository.find(name).source(version).id)

    def forget(self, name: str) -> None:
        """Look at the folder of that name anew the next time."""
        self._found.pop(name, None)

    # ── editions ──

    def next(self, model: ModelId) -> ModelId:
        """An edition of *model* that never was."""
        with self._lock:
            self._last[model.plain] += 1
            return model._replace(edition=self._last[model.plain])

    def current(self, model: ModelId) -> ModelId:
        """The edition of *model* that answers."""
        edition = self._editions.get(model.plain, 0)
        return model if model.edition == edition else model._replace(edition=edition)

    def succeed(self, edition: ModelId) -> None:
        """From now on, *edition* answers."""
        self._editions[edition.plain] = edition.edition
        found = self._found.get(edition.name, {})
        for version, model in list(found.items()):
            if model.plain == edition.plain:
                found[version] = edition
