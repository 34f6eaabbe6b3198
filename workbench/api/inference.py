"""Asking models of this process, without a wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.api.lifetime import Lifetime
from workbench.asking.asks import Asks
from workbench.asking.question import Question, answers, ask, ask_async
from workbench.tensor import Array

if TYPE_CHECKING:
    from workbench.conversion.python_models import PythonModels


class Inference(Lifetime, Asks):
    """Asks the models of its own server."""

    def _infer(self, question: Question) -> Any:
        return ask(self._core, question)

    async def _ainfer(self, question: Question) -> Any:
        return await ask_async(self._core, question)

    def _stream(self, question: Question) -> Iterator[Any]:
        return answers(self._core, question)

    def _given(self, model: str, inputs: object, by_keyword: Mapping[str, object]) -> object:
        given = super()._given(model, inputs, by_keyword)
        has_models = "_python_models" in vars(self)
        return self._python_models.in_order(model, given) if has_models else given

    def _example(self, model: str) -> Mapping[str, Array] | None:
        """One row of the example that *model* was served with, if it was."""
        return self._python_models.example(model) if "_python_models" in vars(self) else None

    @cached_property
    def _python_models(self) -> PythonModels:
        from workbench.conversion.python_models import PythonModels  # most need none

        serving = self._serving
        models = PythonModels(lambda: serving.core)
        self._stops.append(models.stop)
        return models
