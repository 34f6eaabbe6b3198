"""``%workbench`` in an IPython shell."""

import functools
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from workbench import Workbench
from workbench.notebook import magics

DECLARED = {"x": ("FP32", [-1])}


@pytest.fixture
def shell(sample_models: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A shell with the extension loaded, beside the sample models."""
    monkeypatch.chdir(sample_models.parent)
    InteractiveShell.clear_instance()
    shell: Any = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "workbench")
    yield shell
    server = getattr(shell, "_workbench", None)
    if server is not None:
        server.stop()
    InteractiveShell.clear_instance()


def run(shell: Any, line: str = "") -> Any:
    return shell.run_line_magic("workbench", line)


def test_infer_takes_the_cell_as_input(shell: Any) -> None:
    """The value at the end of the cell is the input; what the cell defines stays."""
    run(shell, "start sample_models --budget 64MiB")
    infer = functools.partial(shell.run_cell_magic, "workbench")
    body = "import numpy as np\nrows = np.zeros((2, 13), np.float32)\nrows"
    answer = infer("infer wine --version 1 --timeout 30s --output probabilities", body)
    assert len(answer) == 2
    assert shell.user_ns["rows"].shape == (2, 13)
    for line, cell, message in (
        ("infer wine", "x = 1", "the cell ends with the input"),
        ("infer wine", "[1,", r"line 1: '\[' was never closed"),
        ("infer wine", "[[0.0]]", r"^%%workbench infer: .*"),
        ("infer nobody", "[[0.0]]", "no model"),
        ("infer wine --version x", "[[0.0]]", "'x' is not a number from 1"),
        ("infer wine --size 3", "1", "unrecognized arguments: --size 3"),
        ("models", "1", "write %workbench models, without a cell below it"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            infer(line, cell)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="write %%workbench infer MODEL, with the input below it"):
        run(shell, "infer wine")
    with pytest.raises(ZeroDivisionError):  # an error of the user's own code is theirs
        infer("infer wine", "1 / 0")


def test_an_error_of_the_cell_shows_its_line(shell: Any) -> None:
    """And no lines of ours above it."""
    run(shell, "start sample_models --budget 64MiB")
    error = shell.run_cell("%%workbench infer wine\nx = [1]\nx[2]").error_in_exec
    assert isinstance(error, IndexError)
    shown = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(shown))
    assert "----> 2 x[2]" in text
    assert "magics.py" not in text
    assert "cell.py" not in text


def test_every_verb_has_help(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Each verb is in the help, tells its own part of it, and no part is another's."""
    for verb in magics._HELP:
        run(shell, f"{verb} --help")
        told = capsys.readouterr().out
        if verb in ("start", "restart"):
            assert told.strip() == magics._help().strip()
            continue
        assert re.match(rf"    %+workbench {verb}\b", told), told
        assert told.count("%workbench") == 1


def test_loading_starts_nothing(shell: Any) -> None:
    """The extension registers the magic, and no server."""
    assert "workbench" in shell.magics_manager.magics["line"]
    assert not hasattr(shell, "_workbench")


def test_start_serves(shell: Any) -> None:
    """Start returns a running server with the given options."""
    server = run(shell, "start sample_models --budget 64MiB")
    assert isinstance(server, Workbench)
    assert server.settings.budget == 64 * 2**20
    assert httpx.get(f"{server.url}/v2/health/ready").status_code == 200


SESSIONS: dict[str, list[tuple[str, str]]] = {
    "budget, evict and keep-alive show the present value, and take another": [
        ("start sample_models --budget 64MiB", ""),
        ("budget", r"^models may take 64\.0 MiB\n$"),
        ("budget 32MiB", r"^models may take 32\.0 MiB\n$"),
        ("budget 48 MiB", r"^models may take 48\.0 MiB\n$"),
        ("evict", r"^evicted first: least recently used \(lru\)\n$"),
        ("evict cost", r"^evicted first: least loading saved for its memory \(cost\)\n$"),
        ("evict mru", r"^! .*'mru' is not one of lru"),
        ("keep-alive", r"^idle models stay loaded: until room is needed\n$"),
        ("keep-alive 5min", r"^idle models stay loaded: 5 min\n$"),
        ("keep-alive soon", r"^! %workbench keep-alive: 'soon' is not a span of time"),
    ],
    "start says where, and how many models; if there is none, what to do": [
        ("start sample_models", r"^serving 7 models at http://127\.0\.0\.1:\d+\n"),
        ("restart {tmp}", "put ONNX files into {tmp}"),
    ],
    "of a server with gRPC all of these say its address too": [
        (
            "start sample_models --grpc-port 0",
            r"^serving 7 models at http\S+ and gRPC at \S+:\d+\n",
        ),
        ("start sample_models --grpc-port 0", r"^already running at http\S+ and gRPC at \S+ for "),
        ("status", r"(?s)^workbench http\S+ and gRPC at (\S+) with 7 models: .*<.*gRPC at \1"),
    ],
    "a second start is the same server, unless its options are others": [
        ("start sample_models --budget 64MiB", ""),
        ("start sample_models --budget 65536KiB", r"^already running at http\S+ for \d+ s\n"),
        ("start", r"^already running"),
        ("start sample_models --budget 32MiB", r"^! .*budget is 64.0 MiB, not 32.0 MiB.*restart"),
    ],
    "without a verb it is the running server, or says how to start one": [
        ("", "%workbench start FOLDER"),
        ("start sample_models", ""),
        ("", r"(?s)^workbench (http\S+) with 7 models.*<.*\1"),
    ],
    "start after a stop starts the same server, with the same options or with others": [
        ("start sample_models --budget 64MiB", ""),
        ("stop", "^stopped\n$"),
        ("stop", "^no server is running\n$"),
        ("start", r"^serving 7 models"),
        ("budget", r"64\.0 MiB"),
        ("stop", ""),
        ("start --budget 32MiB", r"^serving 7 models"),
        ("budget", r"32\.0 MiB"),
    ],
    "options that were not given again are named, unless they are the defaults": [
        ("start sample_models --budget 64MiB --evict lfu", ""),
        ("stop", ""),
        ("start sample_models --budget 32MiB", r"\nwith the options .* had before: evict lfu\n"),
    ],
    "a mistake in the options of a restart leaves the running server alone": [
        ("start sample_models", ""),
        ("restart --budget much", "^! "),
        ("restart nowhere", "^! "),
        ("restart --port 1 --device vax", "^! "),
        ("status", "^workbench http"),
    ],
    "models are loaded, pinned and unloaded by name, with or without the version": [
        ("start sample_models", ""),
        ("load wine", " ready "),
        ("pin wine 1", r"wine \*"),
        ("unpin wine", r"(?s)^(?!.*wine \*)"),
        ("unload wine", "not loaded"),
    ],
    "to save where nothing can be written is refused with the system's reason": [
        ("start sample_models", ""),
        ("save wine README.md/a", r"^! %workbench save: .*README\.md/a.*: Not a directory$"),
    ],
}


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
def test_a_session(
    shell: Any,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    session: list[tuple[str, str]],
) -> None:
    """What lines of one session print and show; a mistake is one line. The server stays one."""
    servers = set()
    for line, told in session:
        try:
            shown = run(shell, line.format(tmp=tmp_path))
        except UsageError as error:
            seen = f"! {error}"
            assert "\n" not in seen
        else:
            seen = capsys.readouterr().out
            seen += "" if shown is None else repr(shown) + shown._repr_html_()
        assert re.search(told.replace("{tmp}", str(tmp_path)), seen), (line, seen)
        servers.add(getattr(shell, "_workbench", None))
    assert len(servers - {None}) == 1


def test_start_says_which_models_are_broken(
    shell: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Start names the models that no request can load, and where their reasons are."""
    for name in "abcd":
        (tmp_path / name).mkdir()
    run(shell, f"start {tmp_path}")
    told = "; 4 are broken ('a', 'b', 'c', ...): wb.models says why"
    assert capsys.readouterr().out.endswith(f"{told}\n")


def test_several_folders(shell: Any, tmp_path: Path) -> None:
    """Several folders are served as one; others on a running server are another option."""
    (tmp_path / "more.onnx").write_bytes(b"")
    server = run(shell, f"start sample_models {tmp_path}")
    assert "more" in server.names
    assert "wine" in server.names
    with pytest.raises(
        UsageError, match=f"repository is .*sample_models, {tmp_path}, not .*sample"
    ):
        run(shell, "start sample_models")
    assert run(shell, "start") is server


def test_a_port_that_is_taken_is_not_kept(shell: Any) -> None:
    """After such a start, a server that was stopped starts as it was."""
    server = run(shell, "start sample_models")
    run(shell, "stop")
    with socket.create_server(("127.0.0.1", 0)) as other:
        with pytest.raises(UsageError, match="is taken"):
            run(shell, f"start sample_models --port {other.getsockname()[1]}")
        assert run(shell, "start sample_models") is server
        assert server.is_running


def test_restart(shell: Any) -> None:
    """Restart starts the same server anew; what is given is changed, the rest stays."""
    server = run(shell, "start sample_models --budget 64MiB")
    run(shell, "load wine")
    assert run(shell, "restart") is server
    assert not server.snapshot().models
    server.register(lambda x: x, name="mine", inputs=DECLARED, outputs=DECLARED)
    assert run(shell, "restart --budget 32MiB") is server
    assert server.settings.budget == 32 * 2**20
    assert {"mine", "wine"} <= set(server.names)


def test_servers_of_variables(shell: Any) -> None:
    """The only one is restarted; of several none is meant, and their variables are named."""
    with Workbench("sample_models") as one, Workbench() as other:
        shell.user_ns["one"] = one
        assert run(shell, "restart --budget 32MiB") is one
        assert one.settings.budget == 32 * 2**20
        shell.user_ns["other"] = other
        for verb in ("stop", "restart", "models"):
            with pytest.raises(UsageError, match="several servers run here, in one, other: use"):
                run(shell, verb)
        assert one.is_running


def test_save(shell: Any, tmp_path: Path) -> None:
    """A model is saved where the command says; without a place the command says what it lacks."""
    run(shell, "start sample_models")
    assert run(shell, f"save wine {tmp_path}") == tmp_path / "wine"
    assert (tmp_path / "wine" / "1" / "model.onnx").is_file()
    with pytest.raises(UsageError, match="required: folder"):
        run(shell, "save wine")


def test_models_events_logs(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Models, events and logs are shown as text and HTML; a number limits the events."""
    run(shell, "start sample_models")
    run(shell, "load wine")
    assert {"wine", "digits"} <= {model.id.name for model in run(shell, "models")}
    events = run(shell, "events 1")
    assert len(events) == 1
    assert "<b>Events</b>" in events._repr_html_()
    run(shell, "logs")
    assert capsys.readouterr().out
    run(shell, "stop")
    assert "stopped" in repr(run(shell, "events"))


def test_a_server_of_python(shell: Any) -> None:
    """Without a server of its own, %workbench takes the only running one that a variable holds."""
    with Workbench("sample_models") as server, Workbench() as other:
        shell.user_ns.update(wb=server, again=server, _1=other)
        run(shell, "load wine")
        assert [each.id.name for each in server.snapshot().models] == ["wine"]
        shell.user_ns["other"] = other
        with pytest.raises(UsageError, match="several servers run here, in again, other: use th"):
            run(shell, "models")
        started = run(shell, "start sample_models")
        assert run(shell) is started
    del shell.user_ns["other"]
    run(shell, "stop")
    assert run(shell) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hello", r"does not know 'hello'; it knows .*dashboard, .*load, "),
        ("lod wine", "does not know 'lod'; did you mean 'load'"),
        ("serve models", "serve is for a shell: workbench serve --help$"),
        ("start nowhere", r"the repository folder '.*nowhere' does not exist"),
        ("start README.md", r"is a file, not a folder"),
        ("start sample_models --budget many", r"budget: 'many' is not an amount of memory"),
        ("start sample_models --evict fifo", r"evict: 'fifo' is not one of lru, lfu, largest"),
        ("start sample_models --bugdet 1", r"arguments: --bugdet 1; did you mean --budget\?"),
        ("start sample_models --port 99999", r"port: 99999 is not between 0 and 65535"),
        ("load wine", r"no server is running: %workbench start FOLDER"),
        ("events x", r"'x' is not a number from 1"),
        ("stop now", r"unrecognized arguments: now"),
        ("start 'open", r"No closing quotation"),
        ("start models --budget 64 MiB", r"arguments: MiB; put a value with spaces in quotes$"),
    ],
)
def test_mistakes_are_usage_errors(shell: Any, line: str, message: str) -> None:
    """A mistake is one line, without a traceback."""
    with pytest.raises(UsageError, match=message) as caught:
        run(shell, line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("load", r"load: the following arguments are required: model; see %workbench\?"),
        ("load -x", r"required: model; before a name with a dash write --: %workbench load -- -x$"),
        ("bench -x --clients 1", r"required: model; .* write --: %workbench bench -- -x$"),
        ("load -- -x", r"there is no model '-x'; available: diabetes"),
        ("load nobody", r"there is no model 'nobody'; available: diabetes"),
        ("load wine 9", r"model 'wine' has no version 9; it has 1"),
        ("load wine one", r"load: argument version: 'one' is not a number from 1"),
        (f"load wine {'9' * 5000}", r"load: argument version: '9{40}' is not a number from 1"),
    ],
)
def test_mistakes_with_models(shell: Any, line: str, message: str) -> None:
    """A model that there is not is a usage error, and the server goes on."""
    server = run(shell, "start sample_models")
    with pytest.raises(UsageError, match=message):
        run(shell, line)
    assert server.is_running


def test_a_taken_port(shell: Any) -> None:
    """A port in use is a usage error that names who has it."""
    server = run(shell, "start sample_models")
    port = server.url.rpartition(":")[2]
    with pytest.raises(UsageError, match=rf"port {port} is taken by this very process"):
        start_beside(shell, port)
    assert server.is_running


def start_beside(shell: Any, port: str) -> None:
    """Start a second server of this shell on *port*."""
    server = shell._workbench
    del shell._workbench
    try:
        run(shell, f"start sample_models --port {port}")
    finally:
        shell._workbench = server


@pytest.mark.parametrize(
    "code",
    ["%workbench load nobody", "Workbench('nowhere')", "wb.infer('nobody', [1.0])",
     "wb.infer('digits', [1.0])"],
)  # fmt: skip
def test_mistakes_have_no_traceback(
    shell: Any, capsys: pytest.CaptureFixture[str], code: str
) -> None:
    """In a cell, a mistake with the magic or the Python object prints its one line."""
    shell.run_cell("from workbench import Workbench\nwb = %workbench start sample_models")
    capsys.readouterr()
    shell.run_cell(code)
    told = "".join(capsys.readouterr())
    assert "Traceback" not in told
    assert len(told.strip().splitlines()) == 1


def test_a_failing_function_keeps_its_traceback(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A function of the user's that raises is shown with its traceback."""
    shell.run_cell(
        "wb = %workbench start sample_models\n"
        "@wb.model(inputs={'x': ('FP32', [-1])}, outputs={'y': ('FP32', [-1])})\n"
        "def wrong(x):\n"
        "    return x / nothing\n"
    )
    capsys.readouterr()
    shell.run_cell("wb.infer('wrong', [1.0])")
    told = "".join(capsys.readouterr())
    assert "return x / nothing" in told
    assert "RunFailed" in told


def test_help(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """``%workbench?`` and ``%workbench help`` tell every verb and every option."""
    shell.run_cell("%workbench?")
    told = capsys.readouterr().out
    run(shell, "help")
    assert capsys.readouterr().out.strip() in told.replace("Docstring:\n", "")
    for word in ("start", "restart", "unload", "events", "--budget", "--evict", "--port"):
        assert word in told


def test_completion(shell: Any) -> None:
    """Tab completes verbs, names of models, and options."""

    def completed(text: str) -> list[str]:
        with provisionalcompleter():
            found = shell.Completer.completions(text, len(text))
            return [completion.text for completion in found]

    assert completed("%workbench sto") == ["stop"]
    assert completed("%workbench load wi") == []
    run(shell, "start sample_models")
    assert completed("%workbench load wi") == ["wine"]
    digits = {"digits", "digits_conv", "digits_label", "digits_pixels", "digits_reader"}
    assert set(completed("%workbench pin di")) == {"diabetes", *digits}
    assert completed("%workbench start --bud") == ["--budget"]
    policies = ["cost", "largest", "lfu", "lru", "never"]
    assert sorted(completed("%workbench start sample_models --evict ")) == policies
    assert sorted(completed("wb = %workbench start --evict l")) == ["largest", "lfu", "lru"]
    assert completed("wb = %workbench restart --load w") == ["watch"]
    assert completed("%workbench start --device cu") == ["cuda"]
    assert completed("wb=%workbench sto") == ["stop"]
    assert "workbench_" not in completed("%workbench ")
    assert completed("%workbench keep-alive ") == ["1h", "1min", "5min", "off"]
    assert "and" not in completed("%workbench budget ")  # nor other words of Python
    assert "--clients" in completed("%workbench bench digits ")
    assert "--clients" in completed("%workbench bench --c")
    assert "cost" in completed("%workbench evict co")
    assert "wine" in completed("%%workbench infer wi")
    assert "sample_models/" in completed("%workbench start sample_m")


def test_reloading_keeps_the_server(shell: Any) -> None:
    """After %reload_ext the running server is found again."""
    server = run(shell, "start sample_models")
    shell.run_line_magic("reload_ext", "workbench")
    assert run(shell) is server
    assert server.is_running


def test_unloading_takes_the_magic_away(shell: Any) -> None:
    """After %unload_ext there is no magic; a second %load_ext brings it back."""
    shell.run_line_magic("unload_ext", "workbench")
    assert "workbench" not in shell.magics_manager.magics["line"]
    shell.run_line_magic("load_ext", "workbench")
    assert "workbench" in shell.magics_manager.magics["line"]


def test_plan(shell: Any, tmp_path: Path) -> None:
    """Plan answers for the last requests or for a file, and says what it lacks in one line."""
    with pytest.raises(UsageError, match="no server is running"):
        run(shell, "plan")
    server = run(shell, "start sample_models --budget 4MiB")
    with pytest.raises(UsageError, match="workbench plan: the trace has no requests: send some"):
        run(shell, "plan")
    for name, size in (("wine", 13), ("diabetes", 10)) * 3:
        server.infer(name, [[0.0] * size])
    assert "already makes 99 % of these requests warm" in str(run(shell, "plan"))
    assert "already makes 90 % of these requests warm" in str(run(shell, "plan --warm 90%"))
    server.trace.save(tmp_path / "trace.csv")
    assert len(run(shell, f"plan {tmp_path / 'trace.csv'} --evict lfu,cost").trace) == 6
    (tmp_path / "log.csv").write_text("time,model\n1,wine\n2,gone\n")
    plan = run(shell, f"plan {tmp_path / 'log.csv'}")
    assert (len(plan.trace), plan.unknown) == (1, 1)
    for line, message in (
        ("plan none.csv", "none.csv: there is no such file"),
        ("plan --evict mru", "evict: 'mru' is none of lru, lfu, largest, cost, never"),
        ("plan --warm all", "warm is a share, such as 99% or 0.99, not 'all'"),
        ("plan --warm 200%", "warm is a share of requests up to 1.0, not 2.0"),
    ):
        with pytest.raises(UsageError, match=message):
            run(shell, line)


def test_bench(shell: Any) -> None:
    """Bench measures a model; a mistake is one line."""
    run(shell, "start sample_models")
    found = run(shell, "bench wine --clients 1,2 --seconds 0.05")
    assert [point.clients for point in found.points] == [1, 2]
    with pytest.raises(UsageError, match="clients: 'x' is not a list such as 1,2,4"):
        run(shell, "bench wine --clients x")


def test_samples(shell: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are written without the command line; where they cannot be, one line says so."""
    run(shell, f"samples {tmp_path / 'a_folder'}")
    assert "a_folder is written: %workbench start " in capsys.readouterr().out
    assert (tmp_path / "a_folder" / "wine").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"%workbench samples: .*file: File exists"):
        run(shell, f"samples {tmp_path / 'file'}")


def test_doctor(shell: Any) -> None:
    """Doctor needs no server; a port of its own server is no fault."""
    assert "ONNX Runtime" in repr(run(shell, "doctor"))
    server = run(shell, "start sample_models")
    port = server.url.rpartition(":")[2]
    assert all(port not in each.found for each in run(shell, "doctor").wrong)
