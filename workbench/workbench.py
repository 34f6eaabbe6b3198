"""The workbench: a server in this process, as a Python object."""

from __future__ import annotations

import inspect
import math
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from workbench import cells
from workbench.asking import Question, answers, ask, ask_async
from workbench.core import ServerCore
from workbench.core.status.snapshot import ModelStatus
from workbench.engines import overwritten
from workbench.errors import PortInUse, SettingError, UsageError, WorkbenchError
from workbench.given import NO_INPUTS, Config, Files, config_text, file_contents, inputs_of
from workbench.model import ModelId, Signature
from workbench.seconds import parse_seconds
from workbench.serving import Serving
from workbench.settings import Folders, Settings, help_of_settings, signature_of_settings
from workbench.stop import CancellationToken, stopped_by_interrupt
from workbench.views import EventList, Model, ModelList, Status
from workbench.views.html import status_html
from workbench.views.progress import Progress, show_load
from workbench.views.text import addresses
from workbench.views.times import show_age

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.bench import Bench, Tuning
    from workbench.card import ModelCard
    from workbench.contracts.sagemaker.endpoint import EndpointReport
    from workbench.conversion.declared import Declared
    from workbench.conversion.python_models import PythonModels
    from workbench.conversion.things import Served
    from workbench.dashboard import Dashboard
    from workbench.memory_plan import MemoryPlan
    from workbench.planner import Trace
    from workbench.views.card import CardValues

Function = TypeVar("Function", bound=Callable[..., Any])


class Workbench:
    """Serves the models of a *repository*, one folder or several, on a background thread.

    Takes settings as keyword arguments, such as ``budget="64MiB"`` and ``evict="lru"``; all of
    them are listed below. It is a context manager; without ``with``, call ``start`` and ``stop``.

    Raises ``SettingError`` and ``RepositoryError`` for settings that cannot work.
    """

    __signature__: ClassVar[inspect.Signature]  # with each setting, so that Tab completes them

    def __init__(self, repository: Folders = None, **settings: Any) -> None:
        self._serving = Serving(Settings.of(repository, **settings))
        self._stops = [self._serving.stop]
        self._dashboard: Dashboard | None = None
        self._drawing = threading.Lock()  # of the dashboard
        self._finalizer: weakref.finalize[..., Workbench] | None = None

    @cached_property
    def _python_models(self) -> PythonModels:
        from workbench.conversion.python_models import PythonModels  # most need none

        serving = self._serving
        models = PythonModels(lambda: serving.core)
        self._stops.append(models.stop)
        return models

    def _given(self, model: str, inputs: object, by_keyword: Mapping[str, object]) -> object:
        """The inputs of a call. Raises ``UsageError`` and ``InvalidRequest``."""
        given = inputs_of(inputs, by_keyword)
        has_models = "_python_models" in vars(self)
        return self._python_models.in_order(model, given) if has_models else given

    @property
    def _core(self) -> ServerCore:
        return self._serving.core

    def __setattr__(self, name: str, value: object) -> None:
        if not hasattr(type(self), name) and not name.startswith("_"):
            near = get_close_matches(name, dir(type(self)), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"a workbench has no attribute {name!r} to set{hint}")
        super().__setattr__(name, value)

    # ── life ──

    def start(self) -> Self:
        """Start the server and return; a running server is left as it is.

        It stops by itself once nothing holds this object any more. A notebook's cell that is run
        again gets the server that it started before, if no setting has changed; else it says so.

        Raises ``PortInUse``, and ``SettingError`` for a device or an address that is not available.
        """
        cell = None if self.is_running else cells.running_cell()
        if cell is None:
            self._start()
            return self
        before = cells.earlier(self, cell)
        if before is not None and before.settings == self.settings and not self._core.functions():
            age = show_age(before.uptime_s)
            print(f"already running at {before.link} for {age}")  # noqa: T201
            cells.remember(before, cell)
            return before
        if before is None:
            self._start()
        else:
            self._start_beside(before)
        cells.remember(self, cell)
        return self

    def _start(self) -> None:
        if self.is_running:
            return
        if problem := overwritten():
            warnings.warn(problem, stacklevel=3)
        self._serving.start()
        if self._finalizer is None:
            self._finalizer = weakref.finalize(self, _stop_unheld, self._stops)
            self._finalizer.atexit = False  # the serving stops itself at the exit

    def _start_beside(self, before: Self) -> None:
        """Start, and say that the server of the same cell runs on, and how it is stopped."""
        try:
            self._start()
        except PortInUse as error:
            raise PortInUse(f"{error}; {cells.told_of(before, self)}") from None
        print(cells.told_of(before, self, runs=True))  # noqa: T201

    def stop(self) -> None:
        """Stop the server and free all its memory, within a second; it may be called twice.

        A dashboard becomes a picture of its last state.
        """
        _stop_all(self._stops)
        self.close_dashboard()

    def restart(self, repository: Folders = None, **settings: Any) -> Self:
        """Restart with changed options; options that are not given stay as they are.

        The address, functions, pins, files given with loads, statistics and events stay. Clients
        that connect meanwhile wait. Models are loaded again. Raises as the constructor and
        ``start`` do; then the server runs on as before.
        """
        self._serving.restart(repository, **settings)
        return self

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        """Whether the server answers requests."""
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
        """Where it answers over gRPC, such as ``127.0.0.1:8001``, or ``unix:`` and a path.

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
        """Which model is unloaded when room is needed: ``lru``, ``lfu``, ``largest``, ``cost``.

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

    # ── models ──

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
        """Run *model* on what you have, as a request over HTTP would, without the wire.

        An interrupt, or the end of *timeout_s*, ends the call at once, and the run at the next
        node of the model. A function runs to its end, and a load goes on for the next request.

        *inputs* is one value for a model of one input, else a dict by name; names may be keywords
        too: ``wb.infer("m", a=1, b=2)``. A value is an array, whose numbers are rounded or widened
        to the model's datatype; a list; a tensor of PyTorch or JAX; a text or several for BYTES;
        BF16 as floats, or as bits in ``uint16``. A table of pandas is the inputs that its columns
        name, or else a matrix. Where the model takes images, the bytes of a PNG or JPEG file, or a
        list of them, will do.

        Returns an array for a model of one output, or for the *output* that you name; else a dict
        by name, with ``numpy()`` and ``df()``. BYTES are ``str`` where all of the output is UTF-8;
        with *raw*, always ``bytes``.

        Raises ``ModelNotFound``, ``VersionNotFound``, ``ModelNotReady``,
        ``LoadFailed``, ``MemoryExhausted``, ``InvalidRequest``, ``RunFailed``,
        ``DeadlineExceeded``, ``UsageError``.
        """
        given = self._given(model, inputs, by_keyword)
        return ask(self._core, Question(model, given, version, timeout_s, output, raw))

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
        return await ask_async(self._core, Question(model, given, version, timeout_s, output, raw))

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
        return answers(self._core, Question(model, given, version, raw=raw))

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
        if config is not None or files is not None:
            return self._load_with(model, version, config_text(config), file_contents(files))
        stop, core = CancellationToken(), self._core
        with stopped_by_interrupt(stop), Progress() as progress:
            show = partial(show_load, progress, core, model)
            return self._model(core.call(core.load, model, version, stop, meanwhile=show))

    def _load_with(
        self, model: str, version: int | None, config: str | None, files: dict[str, bytes]
    ) -> Model:
        if version is not None:
            raise UsageError("a load with a config is of all versions: leave out the version")
        core = self._core
        with Progress() as progress:
            show = partial(show_load, progress, core, model)
            core.call(core.load_all, model, config, files, meanwhile=show)
        return self._model(core.status(model))

    def unload(
        self, model: str, version: int | None = None, *, dependents: bool = False
    ) -> Model | None:
        """Unload *model*; returns when its memory is back. Raises ``ModelNotFound``.

        Requests that run or wait for it are answered first; a load that no request waits for is
        ended. With *dependents*, the parts of an ensemble are unloaded too, except parts of
        another ensemble and models that were loaded by hand. Returns ``None`` if the files of the
        model are gone.
        """
        unload = partial(self._core.unload, model, version, dependents=dependents)
        self._core.call(unload)
        if model not in self.names:
            return None
        return self._model(self._core.status(model, version))

    def pin(self, model: str, version: int | None = None) -> Model:
        """Load *model* and never evict it. Raises as ``infer`` does."""
        return self._model(self._core.call(self._core.pin, model, version))

    def unpin(self, model: str, version: int | None = None) -> Model:
        """Allow the eviction of *model* again. Raises ``ModelNotFound``."""
        return self._model(self._core.call(self._core.unpin, model, version))

    def serve(
        self,
        thing: Any,
        name: str | None = None,
        *,
        example: object = None,
        convert: bool | None = None,
        inputs: Declared | None = None,
        outputs: Declared | None = None,
    ) -> Served:
        """Serve *thing* as the model *name*, in place of what was served by that name before.

        *thing* is an ONNX file, its bytes or an ``onnx.ModelProto``; an estimator or pipeline of
        scikit-learn; a model of XGBoost or LightGBM; a ``torch.nn.Module``; a pipeline of
        transformers; or a function, as ``register`` takes it, with *inputs* and *outputs* if it
        has no type hints. *example* is some rows of its input: an array, a table, a list of texts,
        a tensor or a tuple of them.

        Estimators and modules are converted to ONNX where the converter is installed, and the
        conversion is tried on the example; else a function calls them. With *convert* it is one or
        the other. What was chosen, and the largest difference, is in what this returns.

        Raises ``UsageError`` for what cannot be served, and as ``load`` does.
        """
        declared = {"inputs": inputs, "outputs": outputs}
        return self._python_models.serve(thing, name, example, convert, declared)

    def register(
        self,
        function: Callable[..., Any],
        *,
        inputs: Declared | None = None,
        outputs: Declared | None = None,
        name: str | None = None,
        version: int = 1,
        memory: str | int | None = None,
        max_batch_size: int = 0,
        instances: int = 0,
        max_queue_delay: str | float = 0,
    ) -> None:
        """Serve *function* as a model, in place of an older one of the same name.

        *inputs* and *outputs* declare ``{name: (datatype, shape)}`` with V2 datatypes, or numpy's
        or PyTorch's types, and -1 for any size: ``{"x": ("FP32", [-1, 4])}``. Without them its
        type hints do: ``def f(x: Float32["batch", 4]) -> Float32["batch"]``. The function is
        called with one array an input, by name, from several threads at once; it returns one
        array, a tuple in order, or a dict by name. Numbers of another type are rounded or widened
        to the declared one. An input whose parameter has a default may be left out. An ``async``
        function runs on an event loop of the server's. If the function has a parameter
        ``parameters`` that is no input, it gets those of the request as a dict. A generator
        function yields several answers: ``stream``, ``generate_stream`` and gRPC's
        ``ModelStreamInfer`` give them one by one, and ``infer`` refuses.

        *memory* is what it takes of the budget, such as ``"10MiB"``. With a *max_batch_size*, the
        first dimension of all tensors, -1, is a batch: requests that come while it runs are put
        together, up to that many elements, and it runs in one thread, or as many as there are
        *instances*. They wait for company only if a *max_queue_delay* is given, such as ``"2ms"``.

        Raises ``UsageError`` for a declaration that makes no sense.
        """
        self._python_models.register(
            function,
            name,
            version,
            inputs,
            outputs,
            memory=memory,
            max_batch_size=max_batch_size,
            instances=instances,
            max_queue_delay=max_queue_delay,
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
        max_batch_size: int = 0,
        instances: int = 0,
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
                max_batch_size=max_batch_size,
                instances=instances,
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

    # ── reading ──

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all models, loaded or not."""
        return self._core.names()

    @property
    def models(self) -> ModelList:
        """Every model of the repository and every function, loaded or not."""
        return ModelList(map(self._model, self._core.index()))

    def _model(self, status: ModelStatus) -> Model:
        return Model.of(status, self._signature)

    def _signature(self, model: ModelId) -> Signature | None:
        try:
            return self._core.signature(model.name, model.version or None)
        except WorkbenchError:  # it is broken, and its state says why
            return None

    @property
    def events(self) -> EventList:
        """What happened so far, oldest first."""
        return EventList(self._core.events.since(0))

    def __getitem__(self, name: str) -> ModelCard:
        """The card of a model: it shows what the model takes, its state, and calls to copy.

        ``wb["iris"](x)`` asks it. Raises ``ModelKeyError``, a ``KeyError``.
        """
        from workbench.card import ModelCard, check_known  # for who looks at models

        return ModelCard(check_known(name, self.names), self.infer, self._card)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        """The names of all models, as those of a dict."""
        return iter(self.names)

    def _card(self, name: str) -> CardValues:
        from workbench.card import card_of

        query = self.link.removeprefix(self.url).removeprefix("/")  # the token, if it was made
        return card_of(self._core, name, self.url, query, token=bool(self.token))

    def _ipython_key_completions_(self) -> list[str]:
        """What Tab offers behind ``wb["``."""
        return list(self.names)

    def wait_for_events(self, after: int, timeout_s: float) -> EventList:
        """The events numbered above *after*, waiting up to *timeout_s* for there to be one."""
        return EventList(self._core.events.wait(after, timeout_s))

    @property
    def logs(self) -> str:
        """What the server's threads logged, oldest first."""
        return self._serving.logs.text()

    @property
    def endpoint(self) -> EndpointReport:
        """What the multi-model endpoint did with each TargetModel. Raises ``UsageError``."""
        endpoint = self._serving.endpoint
        if endpoint is None or self.settings.artifacts is None:
            raise UsageError(
                "there is no multi-model endpoint: start the server with artifacts=FOLDER"
            )
        return endpoint.report

    def snapshot(self) -> Status:
        """The device, the books and the models in memory, now. Raises ``ServerNotRunning``."""
        return Status.of(self._core.snapshot())

    def dashboard(self) -> Dashboard:
        """Live memory, models and events with their controls, as the output of a notebook's cell.

        One is live at a time: an older one becomes a picture, as all do when the server stops.
        Raises ``ServerNotRunning``.
        """
        from workbench.dashboard import Dashboard  # ipywidgets takes its time

        dashboard = Dashboard(self, lambda: self._core)
        with self._drawing:
            before, self._dashboard = self._dashboard, dashboard
        if before is not None:
            before.close()
        return dashboard

    def close_dashboard(self) -> Dashboard | None:
        """Make the live dashboard a picture of its last state, which files can keep.

        Returns it, ``None`` if there is none. The server is not touched.
        """
        with self._drawing:
            dashboard, self._dashboard = self._dashboard, None
        if dashboard is not None:
            dashboard.close()
        return dashboard

    @property
    def trace(self) -> Trace:
        """The last requests that were answered, at most 50,000: when, which model, how large.

        ``wb.trace.save("trace.npz")`` keeps them; ``Trace.load`` reads them again.
        """
        from workbench.memory_plan import recorded

        return recorded(self._core)

    def plan(
        self,
        trace: Trace | None = None,
        *,
        warm: float = 0.99,
        p99: str | float | None = None,
        evict: Sequence[str] = ("cost",),
    ) -> MemoryPlan:
        """How much memory the requests of *trace* need, by the server's own rules.

        No model is loaded or run. *trace* are this server's last requests, or those of a file:
        ``workbench.planner.read_csv``, ``Trace.load``. The goal is a share of *warm* requests, or
        a *p99* of the wait for loads, such as ``"200ms"``. *evict*: policies to compare.

        Raises ``UsageError`` for a trace without requests for known models, and ``SettingError``.
        """
        from workbench.memory_plan import MemoryPlan, costs_of
        from workbench.planner import Goal

        goal = Goal(warm, None if p99 is None else parse_seconds(p99))
        asked = self.trace if trace is None else trace
        costs = self._core.call(costs_of, self._core, asked)
        known = asked.named(costs).only(costs)
        with Progress() as progress:
            return MemoryPlan(
                known,
                costs,
                self._serving.budget_nbytes,
                self.settings.evict,
                tuple(evict),
                goal,
                parts=len(self.snapshot().devices) if self.is_running else 1,
                keep_alive_s=math.inf if self.keep_alive is None else self.keep_alive,
                wait_s=self.settings.wait,
                max_waiting=self.settings.max_waiting,
                unknown=len(asked) - len(known),
                progress=progress.show,
                set_budget=partial(setattr, self, "budget"),
            )

    def bench(
        self,
        model: str,
        inputs: object = None,
        *,
        clients: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
        rates: Sequence[float] = (),
        batches: Sequence[int] = (),
        batching: Sequence[bool] = (),
        instances: Sequence[int] = (),
        threads: Sequence[int] = (),
        wire: str = "http",
        seconds: float = 0.5,
    ) -> Bench:
        """Measure how fast *model* is: answers a second, and how long they take.

        Another process sends *inputs*, or an example, over HTTP: from each number of *clients* at a
        time, each of which waits for its answer; then at each of *rates*, in requests a second,
        where latency counts from the time at which a request was due. Each load warms up, and goes
        on until the figures of three periods of so many *seconds* agree, or for ten of them.

        *batches*: elements of a request. *batching*, *instances* (runs at once) and *threads* (of a
        run) are tried in all combinations, by loading the model with them; other requests meet
        that too. At the end its own configuration is loaded again. With ``wire="python"`` threads
        of this process call ``infer``, without the wire.

        Raises ``ModelNotFound``, ``ServerNotRunning``, ``UsageError``, and as ``load`` does.
        """
        from workbench.bench import bench_shown, sweep_of
        from workbench.connection import connect  # httpx takes its time

        if wire not in ("http", "python"):
            raise UsageError(f"wire: {wire!r} is neither 'http' nor 'python'")
        sweep = sweep_of(
            clients=clients,
            rates=rates,
            batches=batches,
            batching=batching,
            instances=instances,
            threads=threads,
            inputs=inputs,
            seconds=seconds,
        )
        infer = partial(self.infer, model) if wire == "python" else None
        return bench_shown(connect(self.url, token=self.token), model, sweep, infer)

    def tune(
        self,
        model: str,
        inputs: object = None,
        *,
        p99: str | float,
        clients: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
        batch: int | None = None,
        seconds: float = 0.5,
    ) -> Tuning:
        """Find out with which configuration *model* serves most within a *p99*, such as ``"20ms"``.

        Tries dynamic batching, instances and threads as ``bench`` measures them, which takes a
        minute or two, and writes the ``config.pbtxt`` of the best, with the figures as comments.
        The file that was there stays beside it as ``config.pbtxt.before``. Nothing is written if
        the configuration is the best already, or the model has no folder: ``config`` has the text.

        Raises as ``bench`` does, and ``SettingError`` for another *p99*.
        """
        from workbench.bench import sweep_of, tune_shown
        from workbench.connection import connect

        batches = () if batch is None else (batch,)
        sweep = sweep_of(clients=clients, batches=batches, inputs=inputs, seconds=seconds)
        connection = connect(self.url, token=self.token)
        return tune_shown(connection, model, parse_seconds(p99), sweep, self.settings.repository)

    def save_journal(self, path: str | Path) -> Path:
        """Write the last 10,000 or more decisions about memory into a file, for a bug report.

        It has the names, sizes and errors of models, and no requests. ``workbench replay`` decides
        all of it again. Raises ``ServerNotRunning``, and ``OSError`` for another place.
        """
        written = Path(path)
        written.write_bytes(self._core.journal())
        return written

    def plot_memory(self) -> Figure:
        """A figure of the memory over time: who held it, the budget, each eviction."""
        now_s = time.time()
        from workbench.views.figures import memory_figure

        numbers = {}
        if self.is_running:
            models = self._core.counted().models
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
        return status_html(self.snapshot(), self._title(), self.link)

    def _title(self) -> str:
        places = addresses(self.link, self.grpc_urls)
        return f"workbench {places} with {len(self.names)} models: "


def _stop_all(stops: Iterable[Callable[[], None]]) -> None:
    for stop in stops:
        stop()


def _stop_unheld(stops: Iterable[Callable[[], None]]) -> None:
    """Stop a server that nothing holds; in a thread, as the garbage may be collected in any.

    When the process ends there are no new threads, and servers were stopped at its exit.
    """
    if sys.is_finalizing():
        return
    threading.Thread(target=_stop_all, args=(stops,), name="workbench-unheld", daemon=True).start()


Workbench.__signature__ = signature_of_settings()
Workbench.__doc__ = f"{Workbench.__doc__}\n    Settings:\n\n{help_of_settings()}\n"
