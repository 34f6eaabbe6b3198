"""The workbench: a server in this process, as a Python object."""

from __future__ import annotations

import atexit
import math
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from workbench.contracts.sagemaker.endpoint import Endpoint, EndpointReport
from workbench.core import Describe, ServerCore
from workbench.declared import Declared, declared_id, declared_model
from workbench.errors import (
    RequestStopped,
    ServerNotRunning,
    SettingError,
    UsageError,
)
from workbench.events import ServerStarted, ServerStopped
from workbench.given import Config, Files, config_text, file_contents, tensors_of
from workbench.host import Listener, LogRing, ServerHost, listen
from workbench.inference import InferRequest
from workbench.settings import Folders, Settings
from workbench.stop import CancellationToken
from workbench.tensor import Array
from workbench.tokens import AUTO, check_reach, choose, is_shared_machine, remove_token, write_token
from workbench.views import EventList, Model, ModelList, Status
from workbench.views.html import status_html
from workbench.views.text import addresses

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.dashboard import Dashboard
    from workbench.grpc import GrpcServer

Function = TypeVar("Function", bound=Callable[..., Any])

_everywhere: weakref.WeakSet[Workbench] = weakref.WeakSet()  # for the hook of fork alone


class Workbench:
    """Serves the models of a *repository*, one folder or several, on a background thread.

    Takes the settings of ``workbench.settings.Settings`` as keyword arguments:
    ``budget="64MiB"``, ``evict="lru"``, ``load="on-demand"``, ``port=0`` and
    the others. A context manager; else ``start`` it and ``stop`` it.

    Raises ``SettingError`` and ``RepositoryError`` for settings that cannot work.
    """

    def __init__(self, repository: Folders = None, **settings: Any) -> None:
        self._settings = _placed(Settings.of(repository, **settings))
        self._token = _token_for(self._settings)
        self._core = ServerCore(self._settings)
        self._life = threading.RLock()
        self._listeners: list[Listener] = []  # HTTP's is the first
        self._endpoint: Endpoint | None = None  # the last one
        self._token_file: Path | None = None
        self._logs = LogRing(lambda: self._core.log_settings)
        self._dashboard: Dashboard | None = None
        self._started_s = 0.0
        self._budget_nbytes = self._settings.budget or 1
        _everywhere.add(self)

    # ── life ──

    def start(self) -> Self:
        """Start the server and return; a running server is left as it is.

        Raises ``PortInUse``, and ``SettingError`` for a device or an address that is not available.
        """
        return self if self.is_running else self._start(None)

    def _start(self, listening: socket.socket | None) -> Self:
        """As ``start``, on *listening* if it is given."""
        # litestar takes its time
        from workbench.http import Access, DataPlane, ShortCut, create_app

        with self._life:
            plane, access = DataPlane(self._core), Access(self._settings, self._token)
            address = self._settings.host, self._settings.port
            self._endpoint = plane.endpoint
            http = ServerHost(create_app(plane, access), *address, ShortCut(plane, access))
            listeners: list[Listener] = [
                http,
                *_grpc_servers(self._core, self._settings, self._token),
            ]
            self._logs.attach()
            atexit.register(self._stop)
            self._listeners = listeners
            try:
                http.start(listening or _listen(self._settings, self._token))
                for other in self._listeners[1:]:
                    other.start()
                self._core.open()
            except BaseException:
                self._stop()
                raise
            if self._token:
                self._token_file = write_token(http.url, self._token)
            self._started_s = time.monotonic()
            self._budget_nbytes = self._core.snapshot().budget_nbytes
            self._core.events.append(ServerStarted(http.url))
        return self

    def stop(self) -> None:
        """Stop the server and free all its memory, within a second; it may be called twice.

        A dashboard becomes a picture of its last state.
        """
        self._stop_apart()
        with self._life:
            dashboard, self._dashboard = self._dashboard, None
        if dashboard is not None:
            dashboard.close()

    def _stop_apart(self) -> None:
        # An interrupt strikes the main thread anywhere; so the work is done in another.
        stopping = threading.Thread(target=self._stop, name="workbench-stop")
        stopping.start()
        stopping.join()

    def _stop(self) -> None:
        with self._life:
            listeners, self._listeners = self._listeners, []
            if not listeners:
                return
            atexit.unregister(self._stop)
            for listener in listeners:
                listener.stop()
            if self._endpoint is not None:
                self._endpoint.close()
            token_file, self._token_file = self._token_file, None
            if token_file is not None:
                remove_token(token_file, self._token)
            self._core.close()
            self._core.events.append(ServerStopped())
            self._logs.detach()

    def restart(self, repository: Folders = None, **settings: Any) -> Self:
        """Restart with changed options; options that are not given stay as they are.

        The address, functions, pins, files given with loads, statistics and events stay. Clients
        that connect meanwhile wait. Models are loaded again. Raises as the constructor and
        ``start`` do; then the server runs on as before.
        """
        changed = _placed(self._settings.changed(repository, **settings))
        if changed.grpc_port == 0 == self._settings.grpc_port and self._listeners[1:]:
            changed = changed.changed(grpc_port=self.grpc_url.rpartition(":")[2])
        token = _token_for(changed, self._made_token)
        core = ServerCore(changed, records=self._core.records)
        for model, function in self._core.functions().items():
            core.register(model, function)
        core.choose_devices()
        kept = self._listeners[0].duplicate_socket() if self._listeners else None
        if kept is None:
            self._change(changed, core, token)
            return self.start()
        with closing(kept):
            moves = (changed.host, changed.port) != (self._settings.host, self._settings.port)
            listening = _listen(changed, token) if moves else kept.dup()
            before = self._settings, self._core, self._token
            self._change(changed, core, token)
            try:
                return self._start(listening)
            except BaseException:
                self._change(*before)
                self._start(kept.dup())
                raise

    def _change(self, settings: Settings, core: ServerCore, token: str) -> None:
        """Stop the server, if it runs, and take over *settings*, *core* and *token*."""
        if self._endpoint is not None and self.is_running:
            self._endpoint.empty()  # whose copies on disk go with it
        self._core.hand_over(core)
        self._stop_apart()
        self._settings, self._core, self._token = settings, core, token

    def __enter__(self) -> Self:
        return self.start()

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
        listeners = self._listeners
        running = bool(listeners) and all(listener.is_running for listener in listeners)
        return running and self._core.is_open

    @property
    def uptime_s(self) -> float:
        """Seconds since the server started; 0.0 while it does not run."""
        return time.monotonic() - self._started_s if self.is_running else 0.0

    @property
    def url(self) -> str:
        """The address, such as ``http://127.0.0.1:8000``. Raises ``ServerNotRunning``."""
        for listener in self._listeners:
            return listener.url
        raise ServerNotRunning("the workbench is not running: start() it")

    @property
    def grpc_url(self) -> str:
        """Where it answers over gRPC, such as ``127.0.0.1:8001``, or ``unix:`` and a path.

        Raises ``ServerNotRunning``, also if the settings ask for no gRPC.
        """
        for url in self.grpc_urls:
            return url
        raise ServerNotRunning(
            "there is no gRPC: start() the workbench with grpc_port=0, or another port"
        )

    @property
    def grpc_urls(self) -> tuple[str, ...]:
        """All addresses for gRPC, that of ``grpc_url`` first; none while it does not run."""
        return tuple(listener.url for listener in self._listeners[1:])

    @property
    def link(self) -> str:
        """The address for a browser: ``url``, with the token if it was made for this server.

        A token of your own is left out, since what a notebook shows is saved with it. Raises
        ``ServerNotRunning``.
        """
        made = self._made_token
        return f"{self.url}/?token={made}" if made else self.url

    @property
    def _made_token(self) -> str:
        """The token, unless it is the user's own."""
        return self._token if self._settings.token in (None, AUTO) else ""

    @property
    def token(self) -> str:
        """The token that requests must carry (``Authorization: Bearer ...``); ``""`` if none."""
        return self._token

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self._settings

    @property
    def budget(self) -> int | None:
        """The bytes that models may take of each device, at most.

        Set it to a number of bytes or a text such as ``"64MiB"``, also while the server runs:
        models that no longer fit are evicted once they are idle. A restart keeps it. ``None``
        before the start, unless it was set: then it depends on the devices. Raises
        ``SettingError``.
        """
        return self._core.budget_nbytes

    @budget.setter
    def budget(self, amount: str | int) -> None:
        if amount is None:
            raise SettingError("budget: None is not an amount of memory, such as 64MiB")
        with self._life:
            changed = self._settings.changed(budget=amount)
            assert changed.budget is not None
            self._core.call(self._core.resize, changed.budget)
            self._settings, self._budget_nbytes = changed, changed.budget
            if self.is_running:
                self._budget_nbytes = self._core.snapshot().budget_nbytes

    # ── models ──

    def infer(
        self,
        model: str,
        inputs: object,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> Array | dict[str, Array]:
        """Run *model* on numpy arrays, as a request over HTTP would, without the wire.

        An interrupt, or the end of *timeout_s*, ends the call at once, and the run at the next
        node of the model. A function runs to its end, and a load goes on for the next request.

        *inputs* is an array (or list) for a model of one input, else a dict by
        name. Returns an array for a model of one output, else a dict by name.
        BYTES are ``bytes`` objects, BF16 its bits in ``uint16``. Where the model takes images,
        the bytes of a PNG or JPEG file, or a list of them, will do.

        Raises ``ModelNotFound``, ``VersionNotFound``, ``ModelNotReady``,
        ``LoadFailed``, ``MemoryExhausted``, ``InvalidRequest``, ``RunFailed``,
        ``DeadlineExceeded``, ``UsageError``.
        """
        if timeout_s is not None and not _is_positive(timeout_s):
            raise UsageError(f"timeout_s is {timeout_s!r}: it is to be a number above 0")

        def read(describe: Describe) -> InferRequest:
            signature = describe()
            named = self._core.resolve(model, version)
            return InferRequest(model, tensors_of(named, signature, inputs), version)

        outputs = self._core.ask(model, version, read, timeout_s=timeout_s).outputs
        arrays = {name: np.array(tensor.array) for name, tensor in outputs.items()}
        return next(iter(arrays.values())) if len(arrays) == 1 else arrays

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
        stop = CancellationToken()
        with _ended_by_interrupt(stop):
            return Model.of(self._core.call(self._core.load, model, version, stop))

    def _load_with(
        self, model: str, version: int | None, config: str | None, files: dict[str, bytes]
    ) -> Model:
        if version is not None:
            raise UsageError("a load with a config is of all versions: leave out the version")
        self._core.call(self._core.load_all, model, config, files)
        return Model.of(self._core.status(model))

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
        return Model.of(self._core.status(model, version))

    def pin(self, model: str, version: int | None = None) -> Model:
        """Load *model* and never evict it. Raises as ``infer`` does."""
        return Model.of(self._core.call(self._core.pin, model, version))

    def unpin(self, model: str, version: int | None = None) -> Model:
        """Allow the eviction of *model* again. Raises ``ModelNotFound``."""
        return Model.of(self._core.call(self._core.unpin, model, version))

    def register(
        self,
        function: Callable[..., Any],
        *,
        inputs: Declared,
        outputs: Declared,
        name: str | None = None,
        version: int = 1,
        memory: str | int | None = None,
        max_batch_size: int = 0,
        instances: int = 0,
        max_queue_delay: str | float = 0,
    ) -> None:
        """Serve *function* as a model, in place of an older one of the same name.

        *inputs* and *outputs* declare ``{name: (datatype, shape)}`` with V2
        datatypes and -1 for any size: ``{"x": ("FP32", [-1, 4])}``. The function
        is called with one array an input, by name, from several threads at
        once; it returns one array, a tuple in order, or a dict by name. An input whose
        parameter has a default may be left out.
        *memory* is what it takes of the budget, such as ``"10MiB"``.

        With a *max_batch_size*, the first dimension of all tensors, -1, is a batch: requests
        that come while it runs are put together, up to that many elements, and it runs in one
        thread, or as many as there are *instances*. They wait for company only if a
        *max_queue_delay* is given, such as ``"2ms"``.

        Raises ``UsageError`` for a declaration that makes no sense.
        """
        served = declared_model(
            function,
            inputs,
            outputs,
            memory=memory,
            max_batch_size=max_batch_size,
            instances=instances,
            max_queue_delay=max_queue_delay,
        )
        self._core.call(self._core.register, declared_id(function, name, version), served)

    def model(
        self,
        *,
        inputs: Declared,
        outputs: Declared,
        name: str | None = None,
        version: int = 1,
        memory: str | int | None = None,
        max_batch_size: int = 0,
        instances: int = 0,
        max_queue_delay: str | float = 0,
    ) -> Callable[[Function], Function]:
        """``register`` as a decorator."""

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

        return serve

    # ── reading ──

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all models, loaded or not."""
        return self._core.names()

    @property
    def models(self) -> ModelList:
        """Every model of the repository and every function, loaded or not."""
        return ModelList(map(Model.of, self._core.index()))

    @property
    def events(self) -> EventList:
        """What happened so far, oldest first."""
        return EventList(self._core.events.since(0))

    def wait_for_events(self, after: int, timeout_s: float) -> EventList:
        """The events numbered above *after*, waiting up to *timeout_s* for there to be one."""
        return EventList(self._core.events.wait(after, timeout_s))

    @property
    def logs(self) -> str:
        """What the server's threads logged, oldest first."""
        return self._logs.text()

    @property
    def endpoint(self) -> EndpointReport:
        """What the multi-model endpoint did with each TargetModel. Raises ``UsageError``."""
        if self._endpoint is None or self._settings.artifacts is None:
            raise UsageError(
                "there is no multi-model endpoint: start the server with artifacts=FOLDER"
            )
        return self._endpoint.report

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
        with self._life:
            before, self._dashboard = self._dashboard, dashboard
        if before is not None:
            before.close()
        return dashboard

    def plot_memory(self) -> Figure:
        """A figure of the memory over time: who held it, the budget, each eviction."""
        now_s = time.time()
        from workbench.views.figures import memory_figure  # matplotlib takes its time

        return memory_figure(self.events, self._budget_nbytes, now_s)

    def __repr__(self) -> str:
        if not self.is_running:
            folders = ", ".join(map(str, self._settings.repository)) or "no repository"
            return f"workbench on {folders}: not running"
        return f"{self._title()}{self.snapshot()!r}"

    def _repr_html_(self) -> str:
        if not self.is_running:
            return f"<b>{self!r}</b>"
        return status_html(self.snapshot(), self._title())

    def _title(self) -> str:
        places = addresses(self.link, self.grpc_urls)
        return f"workbench {places} with {len(self.names)} models: "

    def _forget_in_child(self) -> None:
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.forget_in_child()
        self._core.forget_in_child()


def _grpc_servers(core: ServerCore, settings: Settings, token: str) -> tuple[GrpcServer, ...]:
    """The servers of the addresses for gRPC, not started. Raises ``SettingError``."""
    if settings.grpc_port is None and not settings.grpc_uds:
        return ()
    found: tuple[GrpcServer, ...] = _grpc().servers(core, token)
    return found


def _placed(settings: Settings) -> Settings:
    """The *settings*; of a server whose models ModelMesh places, as these have to be."""
    if not settings.modelmesh:
        return settings
    changed: Settings = _grpc().settings_of(settings, os.environ)
    return changed


def _grpc() -> ModuleType:
    """The adapter, whose library many do without. Raises ``SettingError`` where that is missing."""
    try:
        import workbench.grpc
    except ImportError as error:
        raise SettingError(
            f"gRPC needs a package that is not installed ({error.name}): "
            "pip install 'serving-workbench[grpc]'"
        ) from None
    return workbench.grpc


def _token_for(settings: Settings, before: str = "") -> str:
    """The token of a server with *settings*; the one of *before*, if one is to be made.

    Raises ``SettingError`` where the settings have to say whether there is one.
    """
    to_make = settings.token in (None, AUTO)
    token = choose(settings.token, settings.host, shared=to_make and is_shared_machine())
    return before if to_make and token and before else token


def _listen(settings: Settings, token: str) -> socket.socket:
    """The socket of a server with *settings* and *token*.

    Raises ``PortInUse``, and ``SettingError`` also where it would let other machines in unasked.
    """
    listening = listen(settings.host, settings.port)
    address = listening.getsockname()
    try:
        if not isinstance(address, str):
            check_reach(settings.token, token, address[0])
    except SettingError:
        listening.close()
        raise
    return listening


def _is_positive(number: object) -> bool:
    return isinstance(number, int | float) and 0 < number < math.inf


@contextmanager
def _ended_by_interrupt(stop: CancellationToken) -> Iterator[None]:
    """Set *stop* at an interrupt, for what goes on in another thread."""
    try:
        yield
    except KeyboardInterrupt:
        stop.set(RequestStopped("interrupted"))
        raise


def _forget_all_in_child() -> None:
    for workbench in list(_everywhere):
        workbench._forget_in_child()  # noqa: SLF001  # the module's own class


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all_in_child)
