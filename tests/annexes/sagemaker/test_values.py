"""What SageMaker's contract means, without a server."""

import errno
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import errors
from workbench.annexes.sagemaker.code import ArtifactCode, HandlerContext, code_reply, code_request
from workbench.annexes.sagemaker.container_http import page_of
from workbench.annexes.sagemaker.errors import ContainerRefused, DiskFull, ModelExists
from workbench.annexes.sagemaker.events import EndpointMeasured, EndpointWarned, TargetNamed
from workbench.annexes.sagemaker.names import core_name, platform_name
from workbench.annexes.sagemaker.refusals import Refusal, check_headers, refusal_of
from workbench.backends.function import FunctionSession
from workbench.errors import InvalidRequest, LoadFailed, ModelNotReady, RunFailed, WorkbenchError
from workbench.events import Event
from workbench.inference import InferResponse
from workbench.model import ModelId, check_name
from workbench.tensor import Tensor

PAGE = Path(__file__).parents[3] / "docs" / "sagemaker.md"
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
OURS = {
    WorkbenchError,
    errors.RunFailed,
    errors.RepositoryError,
    errors.PortInUse,
}
CLASSES = [value for value in vars(errors).values() if isinstance(value, type)]


@settings(derandomize=True, deadline=None)
@given(NAMES)
def test_any_text_is_a_name(name: str) -> None:
    """Every name of the platform is one of the core's, with one part, and comes back as it was."""
    called = core_name(name)
    assert check_name(called) == called
    assert called.count("/") == 1
    assert platform_name(called) == name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a", "a"),
        ("a/é 100%", "a/é 100%"),
        ("a\nb", "a%0Ab"),
        ("a\u2028", "a%E2%80%A8"),
        ("..", ".."),
    ],
)
def test_names_in_texts(name: str, text: str) -> None:
    """A text has the platform's name and no version, unless the name would break its line."""
    assert str(ModelId(core_name(name), 1)) == text
    assert str(ModelId("m", 1)) == "m:1"


@pytest.mark.parametrize("name", ["m", "sagemaker", "sagemaker/m/part", "other/m"])
def test_names_that_are_not_the_platforms(name: str) -> None:
    """Models of the repository, and parts of ensembles, have no name of the platform's."""
    assert platform_name(name) is None


@settings(derandomize=True, deadline=None)
@given(st.sets(NAMES), st.integers(1, 5))
def test_pages_are_the_list(models: set[str], limit: int) -> None:
    """All pages together are the list, in order, and none but the only one is empty."""
    names, token = page_of(models, "", limit)
    found = [names]
    while token:
        names, token = page_of(models, token, limit)
        found.append(names)
    assert [name for names in found for name in names] == sorted(models)
    assert all(found) or len(found) == 1
    assert all(len(names) == limit for names in found[:-1])


@settings(derandomize=True, deadline=None)
@given(st.sets(NAMES), st.sets(NAMES), st.integers(1, 3))
def test_models_that_stay_are_on_one_page(stay: set[str], come: set[str], limit: int) -> None:
    """Whatever comes after the first page, what is there all the time is told exactly once."""
    told, token = page_of(stay, "", limit)
    if token:
        told = told + page_of(stay | come, token, 10**6)[0]
    assert [name for name in told if name in stay] == sorted(stay)


@pytest.mark.parametrize("token", ["?", "AAA=A", "_w", "é"])
def test_tokens_that_are_none(token: str) -> None:
    """A token that no page gave is refused."""
    with pytest.raises(InvalidRequest, match="next_page_token"):
        page_of(["a"], token, 1)


def test_errors_have_statuses_by_class() -> None:
    """507 is what unloading cures, 404 what loading cures; the text of an error changes nothing."""
    statuses = {kind: refusal_of(kind("CUDA out of memory, OOM, MemoryError")) for kind in CLASSES}
    by_status = {kind for kind, refusal in statuses.items() if refusal.status == 507}
    assert by_status == {errors.MemoryExhausted, errors.ThreadsExhausted}
    for kind, refusal in statuses.items():
        assert refusal.status != 500 or kind in OURS


def test_whom_a_refusal_tells_to_do_what() -> None:
    """A full queue is 503, to be asked again; a run that lacks memory 507, also a function's."""
    assert refusal_of(errors.QueueRefused("x")).status == 503
    assert (refusal_of(DiskFull("x")).status, refusal_of(ModelExists("x")).status) == (507, 409)
    for cause in (MemoryError(), errors.MemoryExhausted("x")):
        error = errors.RunFailed("x")
        error.__cause__ = cause
        assert refusal_of(error).status == 507


@pytest.mark.parametrize(
    "cause",
    [MemoryError(), *(OSError(code, "x") for code in (errno.ENOMEM, errno.EMFILE, errno.ENOSPC))],
)
def test_what_the_system_lacks(cause: Exception) -> None:
    """Memory, files or room that the system has no more of is 507, whatever failed for it."""
    assert refusal_of(cause).status == 507
    for kind in (LoadFailed, errors.RepositoryError, errors.RunFailed):
        error = kind("x")
        error.__context__ = cause  # as of one raised "from None"
        assert refusal_of(error) == Refusal(507, "x")
    assert refusal_of(OSError(errno.EACCES, "x")).status == 500


def test_an_error_that_is_its_own_cause() -> None:
    """An error of an artifact's code that was raised from itself is answered as any other."""
    error, cause = LoadFailed("x"), ValueError("y")
    error.__cause__ = cause.__cause__ = cause
    assert refusal_of(error) == Refusal(400, "x")


def test_what_a_refusal_says() -> None:
    """A model that is not there, or not loaded, is told in AWS' words; a bug by its class."""
    assert refusal_of(ModelNotReady("x"), "a").message == "Model not found: a"
    assert refusal_of(LoadFailed("x"), "a").message == "x"
    assert refusal_of(KeyError("x")).message == "KeyError: 'x'"
    assert refusal_of(ContainerRefused("{}", 507, "x")) == Refusal(507, "x")
    assert refusal_of(ContainerRefused("no answer")).status == 500
    assert refusal_of(ContainerRefused("[" * 3000, 400)).status == 400
    long = refusal_of(InvalidRequest("\ud800" + "é" * 10**5))
    assert len(long.message) < 5000
    assert long.body["type"] == "BadRequestException"
    assert refusal_of(errors.UnknownMediaType("x")).body["type"] == "UnsupportedMediaTypeException"


def test_code_without_its_model(tmp_path: Path) -> None:
    """The code of an artifact answers no request before its model_fn has returned."""
    script = tmp_path / "inference.py"
    script.write_text("def model_fn(d): return 7\ndef transform_fn(m, *_): return str(m), 'text/x'")
    code = ArtifactCode(tmp_path, script, 2**20)
    session = FunctionSession(ModelId("a", 1), code.function)
    request = code_request("a", b"", "text/csv", "*/*")
    with pytest.raises(ModelNotReady, match="model_fn") as error:
        session.run(request.inputs, ())
    assert refusal_of(error.value, "a") == Refusal(404, "Model not found: a")
    code.load()
    answer = session.run(request.inputs, tuple(session.signature.outputs))
    assert [each.array[0] for each in answer] == [b"7", b"text/x", b"[200, {}]"]


def test_an_interrupt_of_the_main_thread(tmp_path: Path) -> None:
    """Ctrl-C ends a check that runs code, and is no failure of the code."""
    script = tmp_path / "inference.py"
    script.write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        ArtifactCode(tmp_path, script, 2**20)


@pytest.mark.parametrize(
    ("takes", "is_given"),
    [
        ("x, m", False),
        ("x, m, *, z=1", False),
        ("x, m, **more", False),
        ("x, m, context", True),
        ("x, m, z=1", True),
        ("x, m, *more", True),
        ("x, m, context, *, z=1", True),
    ],
)
def test_who_gets_the_context(tmp_path: Path, takes: str, is_given: bool) -> None:
    """It is one positional argument more; arguments that have to be named do not count."""
    script = tmp_path / "inference.py"
    told = "str([type(each).__name__ for each in locals().values()])"
    script.write_text(f"def model_fn(d): return 2\ndef predict_fn({takes}): return {told}")
    code = ArtifactCode(tmp_path, script, 2**20)
    code.load()
    body, *_ = code.function.function([b"[1]"], *[[b"application/json"]] * 2, {})
    assert (b"HandlerContext" in body[0] or b"tuple" in body[0]) == is_given


def test_code_whose_error_has_no_message(tmp_path: Path) -> None:
    """Its class is told all the same."""
    script = tmp_path / "inference.py"
    script.write_text("class Mute(Exception):\n    def __str__(self): 1 / 0\nraise Mute")
    with pytest.raises(LoadFailed, match="raised Mute: its message cannot be read"):
        ArtifactCode(tmp_path, script, 2**20)


def test_where_code_failed_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The error is one line; the log has the traceback, with the line of the code."""
    script = tmp_path / "inference.py"
    script.write_text("def model_fn(d):\n    return {}['weights']\ndef predict_fn(x, m): ...\n")
    code = ArtifactCode(tmp_path, script, 2**20)
    with pytest.raises(LoadFailed, match=r"^model_fn of \S+ raised KeyError: 'weights'$"):
        code.load()
    assert caplog.records[-1].message == f"model_fn of {tmp_path} raised"
    assert "return {}['weights']" in caplog.text
    assert "KeyError" in caplog.text


def test_what_code_is_told_of_a_request() -> None:
    """Its headers, in whatever case and script, but neither its token nor its cookies."""
    context = HandlerContext("", None)
    context.take({"accept": "*/*", "x-t": "\xc3\xa9", "authorization": "x", "cookie": "y"})
    assert context.get_all_request_header(0) == {"accept": "*/*", "x-t": "é"}
    assert context.get_request_header(0, "X-T") == "é"
    assert context.get_request_header(0, "cookie") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content-length", "1"),
        ("Transfer-Encoding", "chunked"),
        ("content-type", "text/plain"),
        ("a b", "c"),
        ("", ""),
        ("a", "é"),
        ("a", "b\r\nc: d"),
    ],
)
def test_headers_that_an_answer_cannot_have(name: str, value: str) -> None:
    """What would break the answer is refused."""
    with pytest.raises(ValueError, match="an answer cannot have the header"):
        HandlerContext("", None).set_response_header(0, name, value)


@pytest.mark.parametrize("status", [100, 204, 299, "200"])
def test_statuses_that_an_answer_cannot_have(status: Any) -> None:
    """A status without a body, and one that there is not, is refused."""
    with pytest.raises(ValueError, match="an answer cannot have the status"):
        HandlerContext("", None).set_response_status(status)


def test_what_code_gets_without_media_types() -> None:
    """A request that names none is JSON, and so is its answer."""
    request = code_request("m", b"1", "", "")
    told = [request.inputs[name].array[0] for name in ("content_type", "accept")]
    assert told == [b"application/json"] * 2


@pytest.mark.parametrize("name", ["text/\u00e9", "text/plain\r\nset-cookie: x=1"])
def test_a_media_type_that_an_answer_cannot_have(name: str) -> None:
    """Code gives its answer a media type, and nothing that would be a header of its own."""
    values = {"body": b"x", "content_type": name.encode("latin-1"), "head": b"[200, {}]"}
    outputs = {key: Tensor.of([value], "BYTES") for key, value in values.items()}
    with pytest.raises(RunFailed, match="m:1 answered with an invalid media type"):
        code_reply(InferResponse(ModelId("m", 1), outputs))


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (EndpointMeasured("ModelLoadingTime", "a", seconds=0.01, nbytes=2**20),
         "a: ModelLoadingTime 10.0 ms, 1.0 MiB"),
        (EndpointMeasured("ModelCacheHit", "a", count=1), "a: ModelCacheHit 1"),
        (TargetNamed(ModelId("a", 1), "v1/a\n.tar.gz"), "a:1 is 'v1/a\\n.tar.gz'"),
        (EndpointWarned("a.tar.gz", "it is so"), "a.tar.gz: it is so"),
    ],
)  # fmt: skip
def test_an_event_is_one_line(event: Event, text: str) -> None:
    """Each event of the platform reads as one line, and is told on its page."""
    assert str(event) == text
    assert f"| `{event.kind}` | `{type(event).__name__}` |" in PAGE.read_text("utf-8")


LONG = "must be at most {} printable characters of ASCII"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("target-container-hostname", "c", "does not support x-amzn-sagemaker-target-container-"),
        ("inference-component", "c", "does not support x-amzn-sagemaker-inference-component."),
        ("session-id", "7", "does not support x-amzn-sagemaker-session-id."),
        ("enable-explanations", "`true`", "support x-amzn-sagemaker-enable-explanations."),
        ("custom-attributes", "é", LONG.format(1024)),
        ("custom-attributes", "x" * 1025, LONG.format(1024)),
        ("inference-id", "é", LONG.format(64)),
        ("inference-id", "x" * 65, LONG.format(64)),
        ("target-variant", "B", "Variant B of endpoint e not found. Its variant is AllTraffic."),
    ],
)
def test_what_no_endpoint_has(name: str, value: str, told: str) -> None:
    """A header that asks for such a thing is refused by its name."""
    with pytest.raises(InvalidRequest, match=re.escape(told)):
        check_headers("e", {f"x-amzn-sagemaker-{name}": value})
    check_headers("e", {"x-amzn-sagemaker-target-variant": "AllTraffic"})
