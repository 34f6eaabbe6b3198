"""Settings: the one place where an option is declared.

A keyword argument, a variable ``WORKBENCH_<NAME>``, a command-line flag and an
argument of the magic are all made from the fields below. A given value wins
over the environment, which wins over the default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from workbench.errors import SettingError
from workbench.nbytes import parse_nbytes
from workbench.seconds import parse_seconds
from workbench.tokens import AUTO, UNIX, parse_token

Parse = Callable[[Any], Any]

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,30}")
_DEVICE = re.compile(r"auto|cpu|cuda(:(0|[1-9][0-9]{0,3}))?|(GPU|MIG)-[0-9A-Za-z/-]{1,80}")


GROUPS = ("model-repository", "shared-memory", "logging", "functions")
"""The groups of requests that the setting ``restrict`` may close."""

_HOST = re.compile(r"[a-z0-9_.-]{1,253}|\*")
_PORT_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_ENDPOINT = re.compile(r"on|port:[0-9]{1,5}|unix:.+")
_ORIGIN = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:[a-z0-9_.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?"
)


def _option(default: object, help_text: str, parse: Parse, *, secret: bool = False) -> Any:
    metadata = {"help": help_text, "parse": parse, "secret": secret}
    return field(default=default, repr=not secret, metadata=metadata)


def _one_of(*choices: str) -> Parse:
    def parse(value: object) -> str:
        if value not in choices:
            raise SettingError(f"{value!r} is not one of {', '.join(choices)}")
        return str(value)

    parse.choices = choices  # type: ignore[attr-defined]
    return parse


def _whole_number(low: int, high: int) -> Parse:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise SettingError(f"{value!r} is not a whole number")
        if not _WHOLE_NUMBER.fullmatch(str(value).strip()):
            raise SettingError(f"{value!r} is not a whole number")
        if not low <= int(value) <= high:
            raise SettingError(f"{value} is not between {low} and {high}")
        return int(value)

    return parse


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("on", "off"):
        raise SettingError(f"{value!r} is neither on nor off")
    return value == "on"


_switch.choices = ("on", "off")  # type: ignore[attr-defined]


def _address(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise SettingError(f"{value!r} is not a name")
    if value == "*":
        raise SettingError("'*' is no address: 0.0.0.0 is all addresses of this machine")
    return value


def _socket_file(value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        raise SettingError(f"{value!r} is not a path")
    return str(value).removeprefix(UNIX)


def _endpoint(value: object) -> str:
    if value in ("", "off"):
        return ""
    if not isinstance(value, str) or not _ENDPOINT.fullmatch(value):
        raise SettingError(f"{value!r} is neither port:NUMBER, unix:PATH, on nor off")
    return value


def _media_type(value: object) -> str:
    if not isinstance(value, str) or not _MEDIA_TYPE.fullmatch(value.strip()):
        raise SettingError(f"{value!r} is no media type, such as text/csv")
    return value.strip()


def _listed(value: object, what: str) -> tuple[str, ...]:
    """The texts of a list, or of one text with commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable) or not all(isinstance(part, str) for part in parts):
        raise SettingError(f"{value!r} is no list of {what}")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _hosts(value: object) -> tuple[str, ...]:
    return tuple(map(_host_name, _listed(value, "host names")))


def _host_name(text: str) -> str:
    host = text.strip("[]").lower().removesuffix(".")
    try:
        return str(ip_address(host))
    except ValueError:
        if _HOST.fullmatch(host):
            return host
    raise SettingError(f"{text!r} is no name of a host, such as lab.example.org, without a port")


def _origins(value: object) -> tuple[str, ...]:
    return tuple(map(_origin, _listed(value, "origins")))


def _origin(text: str) -> str:
    origin = text.lower().removesuffix("/")
    if not _ORIGIN.fullmatch(origin):
        raise SettingError(f"{text!r} is no origin, such as https://lab.example.org:8888")
    default = {"http": ":80", "https": ":443"}.get(origin.partition(":")[0])
    return origin.removesuffix(default) if default else origin  # as browsers send it


def _restrictions(value: object) -> tuple[tuple[str, str], ...]:
    """Pairs of a group and ``off``, or the token that opens it."""
    if isinstance(value, Mapping):
        value = tuple(value.items())
    if value == "":  # of a variable that was to hold something
        raise SettingError("it is empty: leave it out, or say such as model-repository=off")
    if isinstance(value, str):
        value = tuple(
            tuple(part.strip().split("=", 1)) for part in value.split(",") if part.strip()
        )
    if not isinstance(value, Iterable):
        raise SettingError("it is no list such as model-repository=off,functions=TOKEN")
    found: dict[str, str] = {}
    for pair in value:
        if not isinstance(pair, tuple) or len(pair) != 2 or pair[0] not in GROUPS:
            raise SettingError(
                "it is no list such as model-repository=off,functions=TOKEN; "
                f"there are {', '.join(GROUPS)}"
            )
        found[pair[0]] = _opened_by(pair[1])
    return tuple(found.items())


def _opened_by(value: object) -> str:
    if value == AUTO:
        raise SettingError("a group is off, or has a token of your own, not auto")
    return parse_token(value)


def _device(value: object) -> str:
    if not isinstance(value, str) or not _DEVICE.fullmatch(value):
        raise SettingError(
            f"{value!r} is not one of auto, cpu, cuda, cuda:1, "
            "or the beginning of a GPU's UUID (GPU-..., MIG-...)"
        )
    return value


def _amount_or_off(value: object) -> int:
    if value in ("off", "0") or (type(value) is int and value == 0):
        return 0
    try:
        return _amount(value)
    except SettingError:
        raise SettingError(
            f"{value!r} is neither an amount of disk, such as 5GiB, nor off"
        ) from None


def _span(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise SettingError(f"{value!r} is not a span of time, such as 5min")
    return parse_seconds(value)


def _amount(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise SettingError(f"{value!r} is not an amount of memory, such as 64MiB")
    return parse_nbytes(value)


def _names(value: object) -> tuple[str, ...]:
    return _listed(value, "names")


def _url(value: object) -> str:
    if not isinstance(value, str) or not _ORIGIN.fullmatch(value.lower().removesuffix("/")):
        raise SettingError(f"{value!r} is no URL of a container, such as http://127.0.0.1:8080")
    if not value.lower().startswith(("http://", "https://")):
        raise SettingError(f"{value!r} is neither http:// nor https://")
    return value.removesuffix("/")


def _path(value: object) -> Path:
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise SettingError(f"{value!r} is not a folder")
    return _folder(value).absolute()


Folders = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""One folder, several, or none."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one server; make one with ``Settings.of``."""

    repository: tuple[Path, ...] = ()
    """The folders that hold the models; a server may have none."""

    budget: int | None = _option(
        None,
        "memory that models may take, such as 64MiB "
        "(default: 80 % of each GPU's, or half of the host's)",
        _amount,
    )
    evict: str = _option(
        "lru",
        "who leaves when room is needed: the least recently used, the least often used, "
        "the largest, the one that saves the least loading for its memory (cost), or nobody",
        _one_of("lru", "lfu", "largest", "cost", "never"),
    )
    keep_alive: float | None = _option(
        None,
        "how long a model that nobody uses stays, such as 5min (default: until its room is needed)",
        _span,
    )
    load: str = _option(
        "on-demand",
        "when models load: at their first request, only when asked for, or all at the start; watch "
        "does that too, and takes in what is new, changed or gone in the repository",
        _one_of("on-demand", "explicit", "all", "watch"),
    )
    watch_every: float = _option(
        2.0, "how often a repository that is watched is looked at, such as 10s", _span
    )
    reload: str = _option(
        "availability",
        "when a loaded model whose files changed is loaded again: the old one answers until then, "
        "or leaves first where there is no room for both (memory)",
        _one_of("availability", "memory"),
    )
    follow_links: bool = _option(
        False, "whether links in the repository may lead out of it", _switch
    )
    device: str = _option(
        "auto",
        "where models run: auto (GPUs if there are any), cpu, cuda, cuda:1 (the second GPU), "
        "or the beginning of a GPU's UUID (GPU-..., MIG-...)",
        _device,
    )
    host: str = _option(
        "127.0.0.1",
        "the address to listen on, or unix:PATH for a socket in the file system",
        _address,
    )
    port: int = _option(0, "the port to listen on; 0 takes a free one", _whole_number(0, 65535))
    grpc_port: int | None = _option(
        None,
        "the port for gRPC, on the same address; 0 takes a free one (default: there is no gRPC)",
        _whole_number(0, 65535),
    )
    grpc_uds: str = _option(
        "",
        "the path of a socket in the file system for gRPC, which only this user can open",
        _socket_file,
    )
    modelmesh: str = _option(
        "",
        "where ModelMesh tells which models to load: port:8085, or unix:PATH; or on, for the "
        "variables of its adapters to say (default: nowhere)",
        _endpoint,
    )
    token: str | None = _option(
        None,
        "what each request must carry: off, a text of 16 characters or more, or auto: a token is "
        "made where other people use this machine or other machines are let in (default: auto; "
        "where other machines are let in, one of these has to be said)",
        parse_token,
        secret=True,
    )
    allow_hosts: tuple[str, ...] = _option(
        (),
        "other names that requests may be sent to, such as lab.example.org; * is any name",
        _hosts,
    )
    allow_origins: tuple[str, ...] = _option(
        (), "web sites whose pages may send requests, such as https://lab.example.org", _origins
    )
    restrict: tuple[tuple[str, str], ...] = _option(
        (),
        "groups of requests that are off, or need a token of their own, such as "
        f"model-repository=off,functions=TOKEN; there are {', '.join(GROUPS)}",
        _restrictions,
        secret=True,
    )
    threads: int = _option(1, "threads that one model's run may use", _whole_number(1, 1024))
    cache: int = _option(
        5 * 2**30,
        "disk for prepared models, which load again faster, such as 5GiB, and at most a tenth of "
        "the free disk, or off",
        _amount_or_off,
    )
    wait: float = _option(
        60.0,
        "how long a request may wait for a load, a thread or its turn, such as 30s; then it is "
        "told to try again",
        _span,
    )
    max_waiting: int = _option(
        1024, "how many requests may wait so at once; more are refused", _whole_number(1, 10**6)
    )
    max_request: int = _option(
        64 * 2**20, "the largest request body, also once decompressed, such as 64MiB", _amount
    )
    max_image: int = _option(
        256 * 2**20, "the memory that a request's images may take once decoded", _amount
    )
    max_nesting: int = _option(
        100, "how deep arrays and objects of a request's JSON may nest", _whole_number(1, 500)
    )
    max_elements: int = _option(
        2**59, "the most elements that one tensor of a request may have", _whole_number(1, 2**59)
    )
    strict_triton: bool = _option(
        False, "whether requests that cannot be read get Triton's own status, 500, not 400", _switch
    )
    strict_readiness: bool = _option(
        True,
        "whether the server is not ready while a model failed that load='all' was to load",
        _switch,
    )
    shared_memory: bool = _option(
        False, "whether clients on this machine may pass tensors in shared memory", _switch
    )
    default_accept: str | None = _option(
        None,
        "the media type that SageMaker's invocations are answered in where a request accepts any, "
        "such as text/csv (default: JSON, or as the request)",
        _media_type,
    )
    artifacts: Path | None = _option(  # noqa: RUF009  # as all others are made
        None,
        "the folder of the artifacts that X-Amzn-SageMaker-Target-Model names, each a folder there",
        _path,
    )
    artifact_code: bool = _option(
        False,
        "whether the code that artifacts bring (code/inference.py) is run, in this process",
        _switch,
    )

    endpoints: tuple[str, ...] = _option(
        (), "the names of the multi-model endpoint in requests to it (default: any name)", _names
    )
    model_cache: str = _option(
        "enabled",
        "whether models of the endpoint stay for later requests: SageMaker's ModelCacheSetting",
        _one_of("enabled", "disabled"),
    )
    container: str | None = _option(
        None,
        "the URL of another container that runs the endpoint's models, such as "
        "http://127.0.0.1:8080 (default: this server does)",
        _url,
    )

    @classmethod
    def of(
        cls,
        repository: Folders = None,
        *,
        environ: Mapping[str, str] = os.environ,
        **given: object,
    ) -> Settings:
        """Settings from keyword arguments and, for those left out or ``None``, *environ*.

        SageMaker's variables change defaults, such as the port; on its multi-model endpoints the
        platform alone unloads models, so that nobody is evicted.
        A secret that is empty is an error: where one was meant to be, there is to be one.

        Raises ``SettingError`` for an unknown name or a value that does not parse.
        """
        options = {option.name: option for option in declared()}
        for name in given:
            if name not in options:
                raise SettingError(f"there is no setting {name!r}; available: {', '.join(options)}")
        values: dict[str, Any] = {}
        platform = _platform_defaults(environ, options)
        for name, option in options.items():
            variable = variable_name(name)
            if given.get(name) is not None:
                values[name] = _parsed(option, given[name], name)
            elif environ.get(variable) or (option.metadata["secret"] and variable in environ):
                values[name] = _parsed(option, environ[variable], variable)
            elif name in platform:
                values[name] = platform[name]
        _check_safe_ports(environ, values)
        return cls(repository=_folders(repository), **values)

    def changed(self, repository: Folders = None, **given: object) -> Self:
        """The same, but for what is given and not ``None``. Raises ``SettingError``."""
        given = {name: value for name, value in given.items() if value is not None}
        wanted = type(self).of(repository, environ={}, **given)
        names = [*given, *(["repository"] if repository is not None else [])]
        return replace(self, **{name: getattr(wanted, name) for name in names})


_MIB = 2**20
_SAGEMAKER: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "SAGEMAKER_BIND_TO_PORT": ("port", str),
    "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": ("default_accept", str),
    "SAGEMAKER_MAX_REQUEST_SIZE": ("max_request", str),
    "SAGEMAKER_MAX_PAYLOAD_IN_MB": ("max_request", lambda text: int(text) * _MIB),
    "SAGEMAKER_MODEL_JOB_QUEUE_SIZE": ("max_waiting", str),
    "SAGEMAKER_MODEL_SERVER_TIMEOUT": ("wait", str),
    "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": ("wait", str),
}
"""SageMaker's variables, the option that each is the default of, and how it is read."""


def is_multi_model(environ: Mapping[str, str]) -> bool:
    """Whether this is a container of a multi-model endpoint."""
    return environ.get("SAGEMAKER_MULTI_MODEL", "").lower() == "true"


def _platform_defaults(
    environ: Mapping[str, str], options: Mapping[str, Field[Any]]
) -> dict[str, Any]:
    """The options that SageMaker's variables in *environ* have other defaults for.

    Raises ``SettingError``.
    """
    values: dict[str, Any] = {"evict": "never"} if is_multi_model(environ) else {}
    for variable, (name, read) in _SAGEMAKER.items():
        text = environ.get(variable)
        if text:
            try:
                values[name] = _parsed(options[name], read(text), variable)
            except ValueError:
                raise SettingError(f"{variable}: {text!r} is not a whole number") from None
    return values


def _check_safe_ports(environ: Mapping[str, str], values: Mapping[str, Any]) -> None:
    """Ports beside HTTP's are in the range that SageMaker leaves to a container."""
    variable = "SAGEMAKER_SAFE_PORT_RANGE"
    allowed, port = environ.get(variable), values.get("grpc_port")
    if not allowed or port is None:
        return
    ends = _PORT_RANGE.fullmatch(allowed)
    if ends is None:
        raise SettingError(f"{variable}: {allowed!r} is no range of ports, such as 9000-9999")
    if not int(ends[1]) <= port <= int(ends[2]):
        raise SettingError(f"grpc_port: {port} is not in {variable}, {allowed}")


def declared() -> tuple[Field[Any], ...]:
    """The options, in order; each field's metadata holds *help* and *parse*."""
    return tuple(option for option in fields(Settings) if option.metadata)


def variable_name(setting: str) -> str:
    """The environment variable of a *setting*."""
    return f"WORKBENCH_{setting.upper()}"


def _folders(repository: Folders) -> tuple[Path, ...]:
    if repository is None:
        return ()
    if isinstance(repository, str | os.PathLike):
        return (_folder(repository),)
    return tuple(map(_folder, repository))


def _folder(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # there is no such user
        raise SettingError(f"repository: {str(path)!r}: {error}") from None


def _parsed(option: Field[Any], value: object, source: str) -> object:
    try:
        return option.metadata["parse"](value)
    except SettingError as error:
        raise SettingError(f"{source}: {error}") from None
