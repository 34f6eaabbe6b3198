"""The verbs that ask a model: the same for a server in this process and for one elsewhere."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from workbench.client.coercion import NO_INPUTS, inputs_of
from workbench.client.question import Question
from workbench.errors import ModelNotFound, WorkbenchError
from workbench.spelling import meant
from workbench.tracebacks import show_in_one_line


class Asks(ABC):
    """Runs models on what a person has in variables."""

    def infer(
        self,
        model: str,
        inputs: object = NO_INPUTS,
        /,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        output: str | None = None,
        raw: bool = False,
        **by_keyword: object,
    ) -> Any:
        """Run *model* on what you have, as a request over HTTP does.

        An interrupt, or the end of *timeout_s*, ends the call at once, and the run at the next
        node of the model. An ``async`` function is cancelled, any other runs to its end, and a load
        goes on for the next request.

        *inputs* is one value for a model of one input, else a dict by name; names may be keywords
        too: ``wb.infer("m", a=1, b=2)``. A value is an array, whose numbers are rounded or widened
        to the model's datatype; a list; a tensor of PyTorch or JAX; a text or several for BYTES;
        BF16 as floats, or as bits in ``uint16``. A table of pandas, a list of dicts and a dict
        of columns go by the names of the model's columns or inputs; where there are none, a table
        is a matrix. Where the model takes images, the bytes of a PNG or JPEG file, or a
        list of them, will do.

        Returns an array for a model of one output, or for the *output* that you name; else a dict
        by name, with ``numpy()`` and ``df()``. BYTES are ``str`` where all of the output is UTF-8;
        with *raw*, always ``bytes``.

        Raises ``ModelNotFound``, ``VersionNotFound``, ``ModelNotReady``,
        ``LoadFailed``, ``MemoryExhausted``, ``InvalidRequest``, ``RunFailed``,
        ``DeadlineExceeded``, ``UsageError``.
        """
        given = self._given(model, inputs, by_keyword)
        question = Question(model, given, version, timeout_s, output, raw)
        try:
            return self._infer(question)
        except ModelNotFound as error:
            raise self._meant(model, error) from None

    async def ainfer(
        self,
        model: str,
        inputs: object = NO_INPUTS,
        /,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        output: str | None = None,
        raw: bool = False,
        **by_keyword: object,
    ) -> Any:
        """As ``infer``, without blocking the event loop: ``await wb.ainfer("digits", x)``.

        To cancel the task ends the request.
        """
        given = self._given(model, inputs, by_keyword)
        question = Question(model, given, version, timeout_s, output, raw)
        try:
            return await self._ainfer(question)
        except asyncio.CancelledError as cancelled:
            show_in_one_line(cancelled, "ainfer")
            raise
        except ModelNotFound as error:
            raise await asyncio.to_thread(self._meant, model, error) from None

    def stream(
        self,
        model: str,
        inputs: object = NO_INPUTS,
        /,
        *,
        version: int | None = None,
        raw: bool = False,
        **by_keyword: object,
    ) -> Iterator[Any]:
        """As ``infer``, of a model that gives several answers: each as soon as it is there.

        A generator function runs ahead by one answer, and is closed with this iterator.
        """
        given = self._given(model, inputs, by_keyword)
        return self._streamed(Question(model, given, version, raw=raw))

    def _streamed(self, question: Question) -> Iterator[Any]:
        try:
            yield from self._stream(question)
        except ModelNotFound as error:
            raise self._meant(question.model, error) from None

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of all models, loaded or not."""

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        """The names of all models, as those of a dict."""
        return iter(self.names)

    def _ipython_key_completions_(self) -> list[str]:
        """The names that Tab offers behind ``wb["``."""
        return list(self.names)

    def _meant(self, model: str, error: ModelNotFound) -> ModelNotFound:
        """*error*, or one that tells the name most like *model*, which is no name.

        Only people get it: among ten thousand names the search takes half a second.
        """
        try:
            names = self.names
        except WorkbenchError:  # a server that lists none, or that is gone by now
            return error
        hint = "" if model in names else meant(model, names)
        return ModelNotFound(f"there is no model {model!r}{hint}") if hint else error

    def _given(self, model: str, inputs: object, by_keyword: Mapping[str, object]) -> object:
        """The inputs of a call. Raises ``UsageError`` and ``InvalidRequest``."""
        return inputs_of(model, inputs, by_keyword)

    @abstractmethod
    def _infer(self, question: Question) -> Any:
        """The answer."""

    @abstractmethod
    async def _ainfer(self, question: Question) -> Any:
        """The answer, without blocking the event loop."""

    @abstractmethod
    def _stream(self, question: Question) -> Iterator[Any]:
        """The answers, one after the other."""
