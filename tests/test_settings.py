"""Settings: three sources, one precedence, and refusals that name what is wrong."""

import os
import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import SettingError
from workbench.settings import BudgetShare, Settings, declared, variable_name

OPTIONS = (
    "budget", "evict", "keep_alive", "load", "follow_links", "name",
    "device", "host", "port", "grpc_port", "grpc_ping", "token",
    "allow_hosts", "allow_origins", "restrict", "threads", "cache", "wait",
    "exit_timeout", "max_waiting", "max_request",
    "shared_memory", "modelmesh", "artifacts", "artifact_code", "endpoints",
)  # fmt: skip


def test_defaults() -> None:
    """Nothing given and an empty environment make the documented defaults."""
    assert Settings.of(environ={}) == Settings(
        repository=(),
        budget=None,
        evict="lru",
        keep_alive=None,
        load="on-demand",
        device="auto",
        host="127.0.0.1",
        port=0,
        token=None,
        allow_hosts=(),
        allow_origins=(),
        restrict=(),
        threads=1,
        cache=5 * 2**30,
        max_request=64 * 2**20,
        more={
            "shared_memory": False,
            "modelmesh": "",
            "artifacts": None,
            "artifact_code": False,
            "endpoints": (),
        },
    )


def test_the_help_says_the_default() -> None:
    """The help of each option ends with its default, as a person would write it."""
    for option in declared():
        told = re.search(r"\(default: ([^;()]+)[^()]*\)$", option.help)
        assert told, option.name
        if option.default not in (None, (), ""):
            assert option.parse(told[1]) == option.default, option.name


def test_every_option_is_declared_with_help() -> None:
    """Every field but the repository is an option with a line of help and a parser."""
    assert tuple(option.name for option in declared()) == OPTIONS
    house = {option.name for option in fields(Settings)} - {"repository", "more", "placed"}
    assert house | Settings().more.keys() == {*OPTIONS}
    for option in declared():
        assert len(option.help) > 10
        assert "\n" not in option.help
        assert callable(option.parse)


def test_every_default_parses() -> None:
    """The default of every option is a value that the option's own parser takes unchanged."""
    for option in declared():
        if option.default is not None:
            assert option.parse(option.default) == option.default


def test_choices_are_readable() -> None:
    """Where an option has choices, its parser lists them, for the command line to show."""
    choices = {
        option.name: option.parse.choices
        for option in declared()
        if hasattr(option.parse, "choices")
    }
    assert choices == {
        "evict": ("lru", "lfu", "largest", "cost", "never"),
        "load": ("on-demand", "explicit", "all", "watch"),
        "follow_links": ("on", "off"),
        "shared_memory": ("on", "off"),
        "artifact_code": ("on", "off"),
    }


GOOD = [
    ("budget", "64MiB", 64 * 2**20),
    ("budget", "2000000B", 2_000_000),
    ("budget", "1048576", 2**20),
    ("budget", "90%", BudgetShare(0.9)),
    ("budget", "12.5 %", BudgetShare(0.125)),
    ("evict", "never", "never"),
    ("keep_alive", "5min", 300.0),
    ("keep_alive", "0.5", 0.5),
    ("load", "explicit", "explicit"),
    ("load", "all", "all"),
    ("load", "watch", "watch"),
    ("follow_links", "on", True),
    ("name", "a-model.v2", "a-model.v2"),
    ("device", "cpu", "cpu"),
    ("device", "cuda", "cuda"),
    ("device", "cuda:0", "cuda:0"),
    ("device", "cuda:15", "cuda:15"),
    ("device", "GPU-8a", "GPU-8a"),
    ("device", "MIG-GPU-8a7c/1/0", "MIG-GPU-8a7c/1/0"),
    ("host", "0.0.0.0", "0.0.0.0"),
    ("host", "::1", "::1"),
    ("host", "unix:/run/user/1000/w.sock", "unix:/run/user/1000/w.sock"),
    ("port", "8080", 8080),
    ("port", " 8080 ", 8080),
    ("port", "65535", 65535),
    ("token", "auto", "auto"),
    ("token", "off", "off"),
    ("token", "0123456789abcdef", "0123456789abcdef"),
    ("allow_hosts", "Lab.example.org, [::1],*", ("lab.example.org", "::1", "*")),
    ("allow_hosts", ["a", "b.", "a"], ("a", "b")),
    ("allow_hosts", "[0:0::1]", ("::1",)),
    ("allow_origins", "HTTPS://Lab.example.org:8888/", ("https://lab.example.org:8888",)),
    ("allow_origins", "https://a:443,http://b:80", ("https://a", "http://b")),
    ("grpc_port", "8001", 8001),
    ("grpc_port", "unix:/run/user/1000/g.sock", "unix:/run/user/1000/g.sock"),
    ("restrict", "shared-memory, functions", ("shared-memory", "functions")),
    ("restrict", "functions=off", ("functions",)),
    ("restrict", {"functions": "off", "shared-memory": "off"}, ("functions", "shared-memory")),
    ("threads", "4", 4),
    ("cache", "1GiB", 2**30),
    ("cache", "off", 0),
    ("max_request", "1.5 GB", 1_500_000_000),
    ("shared_memory", "on", True),
    ("shared_memory", "off", False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_good_values(name: str, text: str, value: object) -> None:
    """An option is set by WORKBENCH_<NAME>, or by a keyword as text or value, which wins."""
    wanted = Settings.of(environ={variable_name(name): text})
    assert wanted[name] == getattr(wanted, name) == value
    assert variable_name(name) == f"WORKBENCH_{name.upper()}"
    assert Settings.of(environ={}, **{name: value}) == wanted
    # the variable is then not even read
    assert Settings.of(environ={variable_name(name): "?!"}, **{name: text}) == wanted


def test_none_and_empty_are_not_given() -> None:
    """None as an argument leaves the environment's value, and an empty variable the default."""
    environ = {"WORKBENCH_PORT": "81", "WORKBENCH_THREADS": ""}
    made = Settings.of(environ=environ, port=None, threads=None)
    assert (made.port, made.threads) == (81, 1)


def test_the_environment_is_read_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one given, the process's environment of that moment counts."""
    monkeypatch.setenv("WORKBENCH_PORT", "4711")
    assert Settings.of().port == 4711
    monkeypatch.delenv("WORKBENCH_PORT")
    assert Settings.of().port == 0


def test_a_small_budget_with_its_unit() -> None:
    """A few bytes are taken, where it is said that they are bytes."""
    assert Settings.of(environ={}, budget="64B").budget == 64


def test_other_variables_are_nothing() -> None:
    """Variables of other programs, lower-case ones, and Kubernetes' of a service change nothing."""
    environ = {"PORT": "1", "WORKBENCH_NOPE": "1", "workbench_port": "1"}
    service = {"WORKBENCH_SERVICE_HOST": "10.0.0.1", "WORKBENCH_PORT_80_TCP_ADDR": "10.0.0.1"}
    assert Settings.of(environ=environ | service) == Settings()


@pytest.mark.parametrize(
    ("name", "meant"),
    [("BUGDET", "BUDGET"), ("EVICTION", "EVICT"), ("GRPCPORT", "GRPC_PORT"), ("Port", "PORT")],
)
def test_a_variable_that_is_nearly_ours(name: str, meant: str) -> None:
    """A typo in a variable is an error that says what was meant."""
    with pytest.raises(SettingError, match=f"did you mean WORKBENCH_{meant}\\?"):
        Settings.of(environ={f"WORKBENCH_{name}": "1"})


BAD: list[tuple[str, Any, str]] = [
    ("budget", "lots", "'lots' is not an amount of memory"),
    ("budget", "0", "'0' is not an amount of memory"),
    ("budget", "64", "64 has no unit: write 64MiB, 64GiB, or 64B for bytes"),
    ("budget", 64, "64 has no unit: write 64MiB, 64GiB, or 64B for bytes"),
    ("budget", "0%", "'0%' is not a share of memory above 0% and up to 100%"),
    ("budget", "101%", "'101%' is not a share of memory above 0% and up to 100%"),
    ("budget", "-5MiB", "'-5MiB' is not an amount of memory"),
    ("budget", True, "True is not an amount of memory"),
    ("budget", 1.5, "1.5 is not an amount of memory"),
    ("budget", "9" * 5000, "is not an amount of memory"),
    ("host", "*", "'*' is not an address: 0.0.0.0 means all addresses"),
    ("allow_hosts", "10.0.0.5:8000", "'10.0.0.5:8000' is not a host name"),
    ("token", "on", "use auto, off, or 16 to 256 characters"),
    ("token", 5, "use auto, off, or 16 to 256 characters"),
    ("allow_hosts", "http://a", "'http://a' is not a host name"),
    ("allow_hosts", 5, "5 is not a list of host names"),
    ("allow_origins", "*", "'*' is not an origin"),
    ("allow_origins", "null", "'null' is not an origin"),
    ("allow_origins", "lab.example.org", "'lab.example.org' is not an origin, such as https://"),
    ("allow_origins", ["https://a/b"], "'https://a/b' is not an origin"),
    ("restrict", "all", "'all' is no group; there are model-repository, shared-memory, functions"),
    ("restrict", 5, "5 is not a list of groups"),
    ("restrict", "functions=0123456789abcdef", "has no token of its own: functions"),
    ("restrict", {"functions": 1}, "has no token of its own: functions"),
    ("evict", "LRU", "'LRU' is not one of lru, lfu, largest, cost, never"),
    ("evict", ["lru"], "['lru'] is not one of lru, lfu, largest, cost, never"),
    ("keep_alive", "soon", "30s, 5min or 2h, or off"),
    ("keep_alive", 0, "0 is not a span of time"),
    ("keep_alive", True, "True is not a span of time"),
    ("keep_alive", [], "[] is not a span of time"),
    ("load", "lazy", "'lazy' is not one of on-demand, explicit, all, watch"),
    ("device", "gpu", "'gpu' is not one of auto, cpu, cuda, cuda:1, or the beginning of"),
    ("device", "CUDA", "'CUDA' is not one of auto, cpu, cuda"),
    ("device", "cpu:0", "'cpu:0' is not one of auto, cpu, cuda"),
    ("device", "cuda:", "'cuda:' is not one of auto, cpu, cuda"),
    ("device", "cuda:-1", "'cuda:-1' is not one of auto, cpu, cuda"),
    ("device", "cuda:01", "'cuda:01' is not one of auto, cpu, cuda"),
    ("device", "cuda:٢", "'cuda:٢' is not one of auto, cpu, cuda"),
    ("device", "cuda:1\n", "is not one of auto, cpu, cuda"),
    ("device", "1", "'1' is not one of auto, cpu, cuda"),
    ("device", "GPU-", "'GPU-' is not one of auto, cpu, cuda"),
    ("device", "MIG-a,b", "'MIG-a,b' is not one of auto, cpu, cuda"),
    ("device", 1, "1 is not one of auto, cpu, cuda"),
    ("device", ["cpu"], "['cpu'] is not one of auto, cpu, cuda"),
    ("host", "", "'' is not a name"),
    ("host", 5, "5 is not a name"),
    ("modelmesh", "8085", "'8085' is not port:NUMBER, unix:PATH, on, or off"),
    ("grpc_port", "unix:", "'unix:' is not a whole number"),
    ("grpc_port", "/run/g.sock", "'/run/g.sock' is not a whole number"),
    ("port", "http", "'http' is not a whole number"),
    ("port", "--5", "'--5' is not a whole number"),
    ("port", "5-", "'5-' is not a whole number"),
    ("port", "8_0", "'8_0' is not a whole number"),
    ("port", "٨٠", "'٨٠' is not a whole number"),
    ("port", "", "'' is not a whole number"),
    ("port", 1.0, "1.0 is not a whole number"),
    ("port", True, "True is not a whole number"),
    ("port", "9" * 5000, "is not a whole number"),
    ("port", -1, "-1 is not between 0 and 65535"),
    ("port", "65536", "65536 is not between 0 and 65535"),
    ("threads", 0, "0 is not between 1 and 1024"),
    ("threads", 1025, "1025 is not between 1 and 1024"),
    ("cache", "much", "such as 64MiB or 2GB, or off"),
    ("cache", False, "False is not an amount of memory"),
    ("max_request", "huge", "'huge' is not an amount of memory"),
    ("shared_memory", "yes", "'yes' is neither on nor off"),
    ("shared_memory", 1, "1 is neither on nor off"),
    ("shared_memory", ["on"], "['on'] is neither on nor off"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD)
def test_a_bad_argument_is_named(name: str, value: Any, message: str) -> None:
    """A value that does not parse is a SettingError that names the option and the value."""
    with pytest.raises(SettingError) as caught:
        Settings.of(environ={}, **{name: value})
    assert str(caught.value).startswith(f"{name}: ")
    assert message in str(caught.value)


def test_a_bad_variable_is_named() -> None:
    """A variable that does not parse is a SettingError that names the variable and the value."""
    with pytest.raises(SettingError, match=r"^WORKBENCH_DEVICE: 'gpu' is not one of auto, "):
        Settings.of(environ={"WORKBENCH_DEVICE": "gpu"})


@pytest.mark.parametrize("name", ["token", "restrict"])
def test_an_empty_secret_is_a_mistake(name: str) -> None:
    """A variable for a secret that is empty is not the same as none: something is missing."""
    with pytest.raises(SettingError, match=f"WORKBENCH_{name.upper()}: "):
        Settings.of(environ={variable_name(name): ""})
    assert Settings.of(environ={variable_name("host"): ""}).host == "127.0.0.1"


@pytest.mark.parametrize("name", ["ports", "PORT", "repo", "max-request", ""])
def test_an_unknown_option_is_named(name: str) -> None:
    """An unknown name is a SettingError that names the one that was meant, or else all."""
    meant = {"ports": "port", "max-request": "max_request"}.get(name)
    told = f"did you mean {meant!r}?" if meant else f"available: {', '.join(OPTIONS)}"
    with pytest.raises(SettingError) as caught:
        Settings.of(environ={}, **{name: "1"})
    assert str(caught.value) == f"there is no setting {name!r}; {told}"


def test_an_unknown_option_is_refused_even_without_a_value() -> None:
    """A misspelt name is refused even where its value is None."""
    with pytest.raises(SettingError, match="there is no setting 'prot'"):
        Settings.of(environ={}, prot=None)


def test_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """The repository is a path of any kind, with ~ for the user's folder."""
    monkeypatch.setenv("HOME", os.sep + "home")
    assert Settings.of("~/models", environ={}).repository == (Path(os.sep) / "home" / "models",)
    assert Settings.of(Path("models"), environ={}).repository == (Path("models"),)
    assert Settings.of(["a", Path("b")], environ={}).repository == (Path("a"), Path("b"))
    assert Settings.of(environ={}).repository == ()


def test_a_repository_of_no_user() -> None:
    """The folder of a user who is not there is a SettingError."""
    with pytest.raises(SettingError, match=r"^repository: '~no\.such\.user/models'"):
        Settings.of("~no.such.user/models", environ={})


def test_settings_do_not_change() -> None:
    """Settings that were made cannot be changed."""
    with pytest.raises(FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.sampled_from(OPTIONS),
    st.text(max_size=8)
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.binary(max_size=3)
    | st.lists(st.integers(), max_size=2),
)
def test_any_value_parses_or_is_a_setting_error(name: str, value: Any) -> None:
    """Whatever is given, the answer is settings or a SettingError."""
    try:
        made = Settings.of(environ={}, **{name: value})
    except SettingError:
        return
    assert Settings.of(environ={}, **{name: getattr(made, name)}) == made
