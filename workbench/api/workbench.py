"""The workbench: a server in this process, as a Python object."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from urllib.parse import urlsplit

from workbench.annex import annexes, provided
from workbench.api.attributes import missing, unsettable
from workbench.api.screen import Screen
from workbench.api.starting import Starter
from workbench.arguments import check_switches, explains_arguments, path_of
from workbench.client.asks import Asks
from workbench.client.coercion import Config, Files, check_model, config_text, file_contents
from workbench.client.question import Question, answers, ask, ask_async
from workbench.core import ServerCore
from workbench.core.status.snapshot import ModelStatus
from workbench.errors import (
    AttributeUnknown,
    ModelNotFound,
    RequestStopped,
    SettingError,
    UsageError,
    WorkbenchError,
    refused_in_one_line,
)
from workbench.host.serving import Serving
from workbench.model import ModelId, Signature
from workbench.repository import taken_as
from workbench.settings import Folders, Settings, help_of_settings, signature_of_settings
from workbench.spelling import no_folder
from workbench.stop import CancellationToken
from workbench.tensor import Array
from workbench.views.html import status_html
from workbench.views.objects import EventList, Model, ModelList, Status
from workbench.views.progress import Progress, show_load
from workbench.views.text import addresses, models_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.client.card import ModelCard
    from workbench.dashboard.dashboard import Dashboard
    from workbench.objects.declared import Declared
    from workbench.objects.python_models import Conversion, PythonModels
    from workbench.objects.servable import Servable
    from workbench.objects.served import Served
    from workbench.views.card import CardValues

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])


class Workbench(Asks):
    """Serves the models of a *repository*, one folder or several, on a background thread.

    Takes settings as keyword arguments, such as ``budget="64MiB"`` and ``evict="lru"``; all of
    them are listed below. It is a context manager; without ``with``, call ``start`` and ``stop``.

    Raises ``SettingError`` and ``RepositoryError`` for settings that cannot work.
    """

    __signature__: ClassVar[inspect.Signature]  # with each setting, so that Tab completes them

    def __init__(self, repository: Folders = None, **settings: Any) -> None:
        self._serving = Serving(Settings.of(repository, **settings))
        self._starter = Starter(self._serving)
        self._screen = Screen()

    @property
    def _core(self) -> ServerCore:
        return self._serving.core

    def __setattr__(self, name: str, value: object) -> None:
        if not hasattr(type(self), name) and not name.startswith("_"):
            raise AttributeUnknown(unsettable(name, dir(type(self))))
        super().__setattr__(name, value)

    if not TYPE_CHECKING:  # else every attribute would exist

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name) or name.startswith("_"):
                return object.__getattribute__(self, name)  # raises what it raised before
            raise AttributeUnknown(missing(name, dir(self), self._core.status.names()))

    # ── the server ──

    def start(self) -> Self:
        """Start the server and return; a running server is left as it is.

        It stops by itself once nothing holds this object any more. A notebook's cell that is run
        again gets the server that it started before, if no setting has changed; else it says so.

        Raises ``PortInUse``, and ``SettingError`` for a device or an address that is not available.
        """
        return self._starter.start_in_cell(self)

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop the server and free all its memory; it may be called twice.

        New requests are refused at once; running ones have *timeout_s* to finish, by default the
        setting *exit_timeout*. An interrupt ends that wait. A dashboard becomes a picture of its
        last state.
        """
        if timeout_s is not None and not (isinstance(timeout_s, int | float) and timeout_s >= 0):
            raise UsageError(f"timeout_s is {timeout_s!r}: it must be seconds, 0 or more")
        self._screen.draw()
        self._starter.stop(timeout_s)
        self._screen.close()

    def restart(self, repository: Folders = None, **settings: Any) -> Self:
        """Restart with changed options; options that are not given stay as they are.

        The address, functions, pins, files given with loads, statistics, events, and registered
        shared memory stay. Clients that connect meanwhile wait. Models are loaded again. Raises as
        the constructor and ``start`` do; then the server runs on as before.
        """
        self._starter.restart(repository, **settings)
        return self

    def __enter__(self) -> Self:
        self._starter.start(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        """True if the server answers requests."""
        return self._serving.is_running

    @property
    def uptime_s(self) -> float:
        """Seconds since the server started; 0.0 while it does not run."""
        return self._serving.uptime_s

    @property
    def url(self) -> str:
        """The address, such as ``http://127.0.0.1:8000``. Raises ``ServerNotRunning``."""
        return self._serving.url

    @property
    def grpc_url(self) -> str:
        """The server's gRPC address, such as ``127.0.0.1:8001``, or ``unix:`` and a path.

        Raises ``ServerNotRunning``, also if the settings ask for no gRPC.
        """
        return self._serving.grpc_url

    @property
    def grpc_urls(self) -> tuple[str, ...]:
        """All addresses for gRPC, that of ``grpc_url`` first; none while it does not run."""
        return self._serving.grpc_urls

    @property
    def link(self) -> str:
        """The address for a browser: ``url``, with the token if it was made for this server.

        A token of your own is left out, since what a notebook shows is saved with it. Raises
        ``ServerNotRunning``.
        """
        made = self._serving.made_token
        return f"{self.url}/?token={made}" if made else self.url

    @property
    def page(self) -> str:
        """The target of links in a notebook: ``link``; on a JupyterHub, its jupyter-server-proxy.

        That one is the path of an address: the browser knows the hub's name. Raises
        ``ServerNotRunning``.
        """
        prefix, port = os.environ.get("JUPYTERHUB_SERVICE_PREFIX", ""), urlsplit(self.url).port
        if not prefix or port is None:
            return self.link
        return f"{prefix}proxy/{port}/{self.link.removeprefix(self.url).removeprefix('/')}"

    @property
    def token(self) -> str:
        """The token that requests must carry (``Authorization: Bearer ...``); ``""`` if none."""
        return self._serving.token

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self._serving.settings

    @property
    def budget(self) -> int | None:
        """The bytes that models may take of each device, at most.

        Set it to a number of bytes or a text such as ``"64MiB"`` or ``"90%"``, also while it runs:
        models that no longer fit are evicted once they are idle. A restart keeps it. ``None``
        before the start, unless it was set: then it depends on the devices. Raises
        ``SettingError``.
        """
        return self._core.budget_nbytes

    @budget.setter
    def budget(self, amount: str | int) -> None:
        if amount is None:
            raise SettingError("budget: None is not an amount of memory, such as 64MiB")
        self._serving.adjust(budget=amount)

    @property
    def evict(self) -> str:
        """The policy that chooses models to unload: ``lru``, ``lfu``, ``largest``, ``cost``.

        ``never`` unloads none. Set it also while the server runs: the next eviction follows it,
        and it knows how the models were used before. A restart keeps it. Raises ``SettingError``.
        """
        return self.settings.evict

    @evict.setter
    def evict(self, policy: str) -> None:
        if policy is None:
            raise SettingError("evict: None is not a policy; 'never' evicts nobody")
        self._serving.adjust(evict=policy)

    @property
    def keep_alive(self) -> float | None:
        """The seconds that a model stays loaded after its last request; ``None``: no limit.

        Set it to seconds, a text such as ``"5min"``, or ``None`` or ``"off"``, also while the
        server runs. Pinned models stay in any case. A restart keeps it. Raises ``SettingError``.
        """
        return self.settings.keep_alive

    @keep_alive.setter
    def keep_alive(self, span: str | float | None) -> None:
        self._serving.adjust(keep_alive="off" if span is None else span)

    @property
    def logs(self) -> str:
        """The log of the server's threads, oldest line first."""
        return self._serving.logs.text()

    # ── models ──

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
        check_switches(copy=copy, onnx=onnx, anyway=anyway)
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
        check_switches(anyway=anyway)
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
                    status = self._call(
                        model, core.models.load, model, version, stop, meanwhile=show
                    )
                    return self._model(status)
                given = config_text(config), file_contents(files)
                self._call(model, core.models.load_all, model, *given, meanwhile=show)
        except KeyboardInterrupt:
            core.give_up(stop, RequestStopped("interrupted"))
            raise
        return self._model(core.call(core.status.of, model))

    def _call(
        self,
        model: str,
        verb: Callable[..., Result],
        *args: object,
        meanwhile: Callable[[], object] | None = None,
    ) -> Result:
        """The result of *verb*, which concerns *model*; see ``ServerCore.call``."""
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
        unload = partial(self._core.models.unload, model, version, dependents=dependents)
        self._call(model, unload)
        if model not in self.names:
            return None
        return self._model(self._call(model, self._core.status.of, model, version))

    def pin(self, model: str, version: int | None = None) -> Model:
        """Load *model* and never evict it. Raises as ``infer`` does."""
        check_model(model, version)
        return self._model(self._call(model, self._core.models.pin, model, version))

    def unpin(self, model: str, version: int | None = None) -> Model:
        """Allow the eviction of *model* again. Raises ``ModelNotFound``."""
        check_model(model, version)
        return self._model(self._call(model, self._core.models.unpin, model, version))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all models, loaded or not."""
        return self._core.call(self._core.status.names)

    @property
    def models(self) -> ModelList:
        """Every model of the repository and every function, loaded or not."""
        return ModelList(map(self._model, self._core.call(self._core.status.index)))

    def _model(self, status: ModelStatus) -> Model:
        return Model.of(status, self._signature)

    def _signature(self, model: ModelId) -> Signature | None:
        try:
            core = self._core
            return core.call(core.status.signature, model.name, model.version or None)
        except WorkbenchError:  # it is broken, and its state says why
            return None

    def __getitem__(self, name: str) -> ModelCard:
        """The card of a model: it shows what the model takes, its state, and calls to copy.

        ``wb["iris"](x)`` asks it. Raises ``ModelNotFound``, a ``KeyError``.
        """
        from workbench.client.card import ModelCard, check_known  # for who looks at models

        return ModelCard(check_known(name, self.names), self.infer, self._card)

    def _card(self, name: str) -> CardValues:
        from workbench.client.card import card_of

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
        self._starter.stops.append(models.stop)
        return models

    # ── what it shows ──

    def snapshot(self) -> Status:
        """The device, the books and the models in memory, now. Raises ``ServerNotRunning``."""
        return Status.of(self._core.call(self._core.status.snapshot))

    @property
    def events(self) -> EventList:
        """The events so far, oldest first."""
        return EventList(self._core.events.since(0))

    def wait_for_events(self, after: int, timeout_s: float) -> EventList:
        """The events numbered above *after*, waiting up to *timeout_s* for there to be one."""
        return EventList(self._core.events.wait(after, timeout_s))

    def dashboard(self) -> Dashboard:
        """Live memory, models and events with their controls, as the output of a notebook's cell.

        One is live at a time: an older one becomes a picture, as all do when the server stops.
        Raises ``ServerNotRunning``.
        """
        from workbench.dashboard.dashboard import Dashboard  # ipywidgets takes its time

        dashboard = Dashboard(self, lambda: self._core)
        self._screen.show(dashboard)
        return dashboard

    def close_dashboard(self) -> Dashboard | None:
        """Make the live dashboard a picture of its last state, which files can keep.

        Returns it, ``None`` if there is none. The server is not touched.
        """
        return self._screen.close()

    def plot_memory(self) -> Figure:
        """A figure of the memory over time: who held it, the budget, each eviction."""
        now_s = time.time()
        from workbench.views.figures import memory_figure

        numbers = {}
        if self.is_running:
            models = self._core.call(self._core.status.counted).models
            numbers = {model.id: model.load_statistics.number for model in models}
        return memory_figure(self.events, self._serving.budget_nbytes, now_s, numbers)

    def __repr__(self) -> str:
        if not self.is_running:
            folders = ", ".join(map(str, self.settings.repository)) or "no repository"
            return f"workbench on {folders}: not running"
        return f"{self._title()}{self.snapshot()!r}"

    def _repr_html_(self) -> str:
        if not self.is_running:
            return f"<b>{self!r}</b>"
        return status_html(self.snapshot(), self._title(), self.page)

    def _title(self) -> str:
        places = addresses(self.link, self.grpc_urls)
        told = f"workbench {places} with {models_count(len(self.names))}"
        if taken := taken_as(self.settings.repository, self.settings.name):
            told += f" ({taken})"
        for folder in self.settings.repository:
            if wrong := no_folder(folder):
                told += f" (the repository folder {str(folder)!r} {wrong})"
        return f"{told}: "


def _convert(made: Servable, wish: Conversion, path: Path) -> Any:
    """The conversion to ONNX of what was *made* of an object. Raises ``UsageError``."""
    convert = provided("convert")
    if convert is None:
        raise UsageError("objects are not converted here: the annex conversion was removed")
    return convert(made, wish, path)


def serving_of(workbench: Workbench) -> Serving:
    """The server of *workbench*, for the verbs of annexes."""
    return workbench._serving  # noqa: SLF001


def example_of(workbench: Workbench, model: str) -> Mapping[str, Array] | None:
    """One row of the example that *model* was served with, if it was, for the verbs of annexes."""
    return workbench._example(model)  # noqa: SLF001


for _annex in annexes():
    for _name, _verb in _annex.verbs().items():
        setattr(Workbench, _name, _verb)
explains_arguments(Workbench)
Workbench.__signature__ = signature_of_settings()
Workbench.__doc__ = f"{Workbench.__doc__}\n    Settings:\n\n{help_of_settings()}\n"
