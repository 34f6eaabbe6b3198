"""The models of a workbench: served, loaded, pinned, listed, and asked without a wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.annex import provided
from workbench.api.lifetime import Lifetime
from workbench.arguments import path_of
from workbench.asking.asks import Asks
from workbench.asking.given import Config, Files, check_model, config_text, file_contents
from workbench.asking.question import Question, answers, ask, ask_async
from workbench.core.status.snapshot import ModelStatus
from workbench.errors import (
    ModelNotFound,
    RequestStopped,
    UsageError,
    WorkbenchError,
    refused_in_one_line,
)
from workbench.model import ModelId, Signature
from workbench.stop import CancellationToken
from workbench.tensor import Array
from workbench.views.objects import Model, ModelList
from workbench.views.progress import Progress, show_load

if TYPE_CHECKING:
    from workbench.asking.card import ModelCard
    from workbench.objects.declared import Declared
    from workbench.objects.python_models import Conversion, PythonModels
    from workbench.objects.servable import Servable
    from workbench.objects.served import Served
    from workbench.views.card import CardValues

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])


class Models(Lifetime, Asks):
    """Asks, loads and unloads models, serves things of Python as models, and lists them."""

    def serve(
        self,
        thing: Any,
        name: str | None = None,
        *,
        example: object = None,
        inputs: Declared | None = None,
        outputs: Declared | None = None,
        batch: int = 0,
        concurrent: bool | int = False,
        max_queue_delay: str | float = 0,
        copy: bool | None = None,
        onnx: bool = False,
        check: object = None,
        tolerance: float | None = None,
        anyway: bool = False,
    ) -> Served:
        """Serve *thing* as the model *name*, in place of what was served by that name before.

        *thing* is an ONNX file, its bytes or an ``onnx.ModelProto``; an estimator or pipeline of
        scikit-learn; a model of XGBoost or LightGBM; a ``torch.nn.Module``; a pipeline of
        transformers; or a function, as ``register`` takes it, with *inputs* and *outputs* if it
        has no type hints. For a module, *inputs* say which sizes besides the rows are free, as -1.
        *example* is some rows of its input: an array, a table, a list of texts, a tensor or a
        tuple of them. A function is called with it, in place of type hints.

        An object answers itself, by its own methods: a copy of it as it is now, or itself where it
        cannot be copied, is on a GPU or takes more than 256 MiB; *copy* decides. Its rows reach it
        as it was fitted to them: by name, as FP64, texts, dates and categories. What it refuses is
        refused. It runs for one request at a time, unless *concurrent* says more; with *batch*, up
        to so many rows of requests that wait run together, which may change the last bits.

        With *onnx* it is converted instead, and compared with the original on the rows *check*: a
        difference of a row above *tolerance* (1e-4 of the row), or another label, refuses it,
        unless *anyway*. What was compared is in what this returns.

        Raises ``UsageError`` for what cannot be served, and as ``load`` does.
        """
        if not onnx and (check is not None or tolerance is not None or anyway):
            raise UsageError("check=, tolerance= and anyway= are for a conversion: say onnx=True")
        from workbench.objects.declared import Turns
        from workbench.objects.python_models import Conversion

        conversion = Conversion(check, tolerance, anyway) if onnx else None
        turns = Turns(batch, concurrent, max_queue_delay)
        return self._python_models.serve(
            thing,
            name,
            example=example,
            inputs=inputs,
            outputs=outputs,
            turns=turns,
            copy=copy,
            conversion=conversion,
        )

    def register(
        self,
        function: Callable[..., Any],
        *,
        inputs: Declared | None = None,
        outputs: Declared | None = None,
        name: str | None = None,
        version: int = 1,
        memory: str | int | None = None,
        batch: int = 0,
        concurrent: bool | int = False,
        max_queue_delay: str | float = 0,
    ) -> None:
        """Serve *function* as a model, in place of an older one of the same name.

        *inputs* and *outputs* declare ``{name: (datatype, shape)}`` with V2 datatypes, or numpy's
        or PyTorch's types, and -1 for any size: ``{"x": ("FP32", [-1, 4])}``. Without them its
        type hints do: ``def f(x: Float32["batch", 4]) -> Float32["batch"]``. The function is
        called with one array an input, by name; it returns one array, a tuple in order, or a dict
        by name. The arrays are its own: it may change and keep them. Numbers of another type are
        rounded or widened to the declared one. An input whose parameter has a default may be left
        out. Parameters called ``parameters``, ``id`` and ``headers`` that are no inputs get those
        of the request. A generator function yields several answers: ``stream``,
        ``generate_stream`` and gRPC's ``ModelStreamInfer`` give them one by one, and ``infer``
        refuses.

        It runs for one request at a time, or for so many as *concurrent* says (True is any number).
        An ``async`` function lets others in while it awaits, a generator while it does not compute.
        With *batch*, the first dimension of all tensors, -1, is a batch: requests that come while
        it runs are put together, up to so many rows. They wait for company only if a
        *max_queue_delay* is given, such as ``"2ms"``. *memory* is what it takes of the budget, such
        as ``"10MiB"``.

        Raises ``UsageError`` for a declaration that makes no sense.
        """
        from workbench.objects.declared import Turns

        turns = Turns(batch, concurrent, max_queue_delay)
        self._python_models.register(
            function,
            name,
            version=version,
            inputs=inputs,
            outputs=outputs,
            memory=memory,
            turns=turns,
        )

    def model(
        self,
        function: Function | None = None,
        /,
        *,
        inputs: Declared | None = None,
        outputs: Declared | None = None,
        name: str | None = None,
        version: int = 1,
        memory: str | int | None = None,
        batch: int = 0,
        concurrent: bool | int = False,
        max_queue_delay: str | float = 0,
    ) -> Any:
        """``register`` as a decorator: ``@wb.model``, or ``@wb.model(name="double")``."""

        def serve(function: Function) -> Function:
            self.register(
                function,
                inputs=inputs,
                outputs=outputs,
                name=name,
                version=version,
                memory=memory,
                batch=batch,
                concurrent=concurrent,
                max_queue_delay=max_queue_delay,
            )
            return function

        return serve if function is None else serve(function)

    def unregister(self, name: str) -> None:
        """Serve no longer what was served or registered as *name*; returns when its memory is back.

        Requests that have begun are answered first. Raises ``ModelNotFound``, also for a model of
        the repository's folders.
        """
        self._python_models.unregister(name)

    def save(
        self,
        model: str,
        to: str | Path,
        *,
        version: int | None = None,
        check: object = None,
        tolerance: float | None = None,
        anyway: bool = False,
    ) -> Path:
        """Save *model* as a folder that Triton, KServe and this server serve, in the folder *to*.

        That is ``<to>/<model>`` with its ``config.pbtxt`` and ``<version>/model.onnx``; for an
        ensemble also those of its parts. If *to* ends in ``.tar.gz`` or ``.tgz``, it is an archive
        for SageMaker. Files of the same names are replaced, a ``config.pbtxt`` stays beside the new
        one as ``config.pbtxt.before``. Returns the folder, or the archive.

        An object that is served becomes ONNX, as by ``serve`` with ``onnx=True``: *check*,
        *tolerance* and *anyway* are as there. ``conversion.json`` says what was compared.

        Raises ``UsageError`` for a Python function, which has no file, and for a conversion that
        differs; ``ModelNotFound``, ``VersionNotFound``, ``LoadFailed``, ``ServerNotRunning``,
        ``UsageError``.
        """
        from workbench.objects.python_models import Conversion
        from workbench.saving import save

        check_model(model, version)
        folder = path_of("to", to)
        wish = Conversion(check, tolerance, anyway)
        objects = {
            name: partial(_convert, made, wish)
            for name, made in self._python_models.objects.items()
        }
        with refused_in_one_line(folder):
            return self._call(model, save, self._core, model, folder, version, objects)

    def load(
        self,
        model: str,
        version: int | None = None,
        *,
        config: Config | None = None,
        files: Files | None = None,
    ) -> Model:
        """Load *model* now, evicting others if need be. Raises as ``infer`` does.

        An interrupt ends the load, unless others wait for it too.

        *config* (Triton's ModelConfig as a dict or as JSON) replaces ``config.pbtxt`` for all
        versions, and *files* (bytes or paths, by ``"<version>/<name>"``) replace the folder, until
        the model is unloaded. With files, or as an ensemble, a model needs no folder.
        """
        check_model(model, version)
        stop, core = CancellationToken(), self._core
        is_given = config is not None or files is not None
        if is_given and version is not None:
            raise UsageError("a load with a config is of all versions: leave out the version")
        try:
            with Progress() as progress:
                show = partial(show_load, progress, core, model)
                if not is_given:
                    status = self._call(model, core.load, model, version, stop, meanwhile=show)
                    return self._model(status)
                given = config_text(config), file_contents(files)
                self._call(model, core.load_all, model, *given, meanwhile=show)
        except KeyboardInterrupt:
            core.give_up(stop, RequestStopped("interrupted"))
            raise
        return self._model(core.call(core.status, model))

    def _call(
        self,
        model: str,
        verb: Callable[..., Result],
        *args: object,
        meanwhile: Callable[[], object] | None = None,
    ) -> Result:
        """What *verb*, about *model*, returns; see ``ServerCore.call``."""
        try:
            return self._core.call(verb, *args, meanwhile=meanwhile)
        except ModelNotFound as error:
            raise self._meant(model, error) from None

    def unload(
        self, model: str, version: int | None = None, *, dependents: bool = False
    ) -> Model | None:
        """Unload *model*; returns when its memory is back. Raises ``ModelNotFound``.

        Requests that run or wait for it are answered first, for some seconds; a load that no
        request waits for is ended. With *dependents*, the parts of an ensemble are unloaded too,
        except parts of another ensemble and models that were loaded by hand. Returns ``None`` if
        the files of the model are gone.
        """
        check_model(model, version)
        unload = partial(self._core.unload, model, version, dependents=dependents)
        self._call(model, unload)
        if model not in self.names:
            return None
        return self._model(self._call(model, self._core.status, model, version))

    def pin(self, model: str, version: int | None = None) -> Model:
        """Load *model* and never evict it. Raises as ``infer`` does."""
        check_model(model, version)
        return self._model(self._call(model, self._core.pin, model, version))

    def unpin(self, model: str, version: int | None = None) -> Model:
        """Allow the eviction of *model* again. Raises ``ModelNotFound``."""
        check_model(model, version)
        return self._model(self._call(model, self._core.unpin, model, version))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all models, loaded or not."""
        return self._core.call(self._core.names)

    @property
    def models(self) -> ModelList:
        """Every model of the repository and every function, loaded or not."""
        return ModelList(map(self._model, self._core.call(self._core.index)))

    def _model(self, status: ModelStatus) -> Model:
        return Model.of(status, self._signature)

    def _signature(self, model: ModelId) -> Signature | None:
        try:
            core = self._core
            return core.call(core.signature, model.name, model.version or None)
        except WorkbenchError:  # it is broken, and its state says why
            return None

    def __getitem__(self, name: str) -> ModelCard:
        """The card of a model: it shows what the model takes, its state, and calls to copy.

        ``wb["iris"](x)`` asks it. Raises ``ModelNotFound``, a ``KeyError``.
        """
        from workbench.asking.card import ModelCard, check_known  # for who looks at models

        return ModelCard(check_known(name, self.names), self.infer, self._card)

    def _card(self, name: str) -> CardValues:
        from workbench.asking.card import card_of

        example = self._example(name)
        token = bool(self.token)
        read = partial(card_of, self._core, name, self.url, self.page, example, token=token)
        card = self._core.call(read)
        report = self._python_models.report(name) if "_python_models" in vars(self) else None
        return card if report is None else replace(card, report=str(report))

    # ── asking, without a wire ──

    def _infer(self, question: Question) -> Any:
        return ask(self._core, question)

    async def _ainfer(self, question: Question) -> Any:
        return await ask_async(self._core, question)

    def _stream(self, question: Question) -> Iterator[Any]:
        return answers(self._core, question)

    def _example(self, model: str) -> Mapping[str, Array] | None:
        """One row of the example that *model* was served with, if it was."""
        return self._python_models.example(model) if "_python_models" in vars(self) else None

    @cached_property
    def _python_models(self) -> PythonModels:
        from workbench.objects.python_models import PythonModels  # most need none

        serving = self._serving
        models = PythonModels(lambda: serving.core, _convert)
        self._stops.append(models.stop)
        return models


def _convert(made: Servable, wish: Conversion, path: Path) -> Any:
    """The conversion to ONNX of what was *made* of an object. Raises ``UsageError``."""
    convert = provided("convert")
    if convert is None:
        raise UsageError("objects are not converted here: the annex conversion was removed")
    return convert(made, wish, path)
