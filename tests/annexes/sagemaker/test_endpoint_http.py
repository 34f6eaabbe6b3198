"""The platform's half of SageMaker's contract, asked by boto3 itself."""

import errno
import gzip
import io
import json
import os
import re
import shutil
import socket
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from inside import until
from onnx_models import identity, loop

from workbench import Workbench, errors
from workbench.annexes.sagemaker.container import Container
from workbench.annexes.sagemaker.errors import ContainerRefused
from workbench.annexes.sagemaker.events import EndpointMeasured, EndpointWarned
from workbench.annexes.sagemaker.payloads.formats import PayloadRequest
from workbench.annexes.sagemaker.refusals import endpoint_refused
from workbench.annexes.sagemaker.report import TargetStatistics
from workbench.annexes.sagemaker.store import ArtifactStore
from workbench.samples import write_models

ACCESS_KEY = "0123456789abcdef"  # of the client

Ask = Callable[..., Any]


def packed(archive: Path, members: dict[str, bytes], **attributes: Any) -> Path:
    """A tar.gz of *members*; *attributes* are those of the last one."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as tar:
        for number, (name, content) in enumerate(members.items(), 1):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if number == len(members):
                for key, value in attributes.items():
                    setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
    return archive


@pytest.fixture
def onnx(tmp_path: Path) -> bytes:
    """A model whose output is its input."""
    return identity(tmp_path / "identity.onnx").read_bytes()


@pytest.fixture
def prefix(tmp_path: Path, onnx: bytes) -> Path:
    """Artifacts: two archives, and a folder."""
    root = tmp_path / "prefix"
    packed(root / "a.tar.gz", {"model.onnx": onnx})
    packed(root / "v1" / "été.tar.gz", {"model.onnx": onnx})
    (root / "folder").mkdir()
    (root / "folder" / "model.onnx").write_bytes(onnx)
    return root


def asker(boto3: Any, url: str, mode: str = "standard") -> Ask:
    def ask(target: str | None = "a.tar.gz", body: Any = "[1, 2]", **more: Any) -> Any:
        named = {} if target is None else {"TargetModel": target}
        given = {"EndpointName": "mme", "Body": body, "ContentType": "application/json", **named}
        return boto3("invoke_endpoint", url=url, mode=mode, **(given | more))

    return ask


@pytest.fixture
def server(prefix: Path) -> Iterator[Workbench]:
    with Workbench(artifacts=prefix, device="cpu", endpoints="mme", cache="off") as workbench:
        yield workbench


@pytest.fixture
def ask(boto3: Any, server: Workbench) -> Ask:
    return asker(boto3, server.url)


def refused(answer: Any, status: int, code: str) -> str:
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == status, answer
    assert answer["Error"]["Code"] == code
    return str(answer["Error"]["Message"])


def metrics(workbench: Workbench) -> list[tuple[str, str]]:
    events = [entry.event for entry in workbench.events]
    return [(e.metric, e.target_model) for e in events if isinstance(e, EndpointMeasured)]


# ── what works ──


def test_boto3_works_unchanged(ask: Ask, server: Workbench) -> None:
    """Archives, folders and names in other scripts are loaded at the first request, once."""
    for target in ("a.tar.gz", "/a.tar.gz", "v1/été.tar.gz", "folder"):
        answer = ask(target)
        assert json.loads(answer["Body"]) == [1, 2]
        assert answer["ContentType"] == "application/json"
        assert answer["InvokedProductionVariant"] == "AllTraffic"
    assert ask(Accept="text/csv")["Body"] == "1.0\n2.0\n"
    report = server.endpoint
    assert report.loaded_model_count == 3
    assert report.statistics["a.tar.gz"].hits == 2
    assert report.statistics["a.tar.gz"].misses == report.statistics["a.tar.gz"].loads == 1
    told = report.statistics["a.tar.gz"]
    assert min(told.waiting_s, told.downloading_s, told.loading_s) > 0
    assert report.hit_ratio == 2 / 5
    assert "a.tar.gz" in str(report)


def test_what_a_head_asks_for_is_found_once(
    ask: Ask, server: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warm requests of equal heads share the reader of their bodies."""
    made: list[str] = []
    begin = PayloadRequest.__init__
    monkeypatch.setattr(
        PayloadRequest,
        "__init__",
        lambda it, name, *given: made.append(name) or begin(it, name, *given),
    )
    for _ in range(3):
        assert json.loads(ask()["Body"]) == [1, 2]
    assert len(made) == 1


def test_a_model_can_be_mapped_back(ask: Ask, prefix: Path, server: Workbench) -> None:
    """Its name in the container begins with its artifact's, in characters that any container takes.

    On the platform it is a hash, which logs and errors show alone.
    """
    long = f"{'x' * 60}/a.tar.gz"
    (prefix / long).parent.mkdir()
    shutil.copy(prefix / "a.tar.gz", prefix / long)
    for target in ("a.tar.gz", "v1/été.tar.gz", "folder", long):
        ask(target)
    named = {re.sub("-[0-9a-f]{16}$", "", model.id.name) for model in server.snapshot().models}
    assert named == {f"sagemaker/{name}" for name in ("a", "v1-t", "folder", f"{'x' * 38}-a")}


def test_the_steps_are_events(ask: Ask, server: Workbench) -> None:
    """Each step is an event by CloudWatch's name, with its seconds and bytes."""
    ask()
    steps = ["ModelCacheHit", "ModelDownloadingTime", "ModelLoadingTime"]
    told = [metric for metric, _ in metrics(server)]
    assert told[:3] == steps
    assert sorted(told[3:]) == ["LoadedModelCount", "ModelLoadingWaitTime"]
    timed = [e.event for e in server.events if isinstance(e.event, EndpointMeasured)]
    assert all(each.nbytes > 0 for each in timed if each.seconds is not None)


def test_nothing_is_downloaded_twice(ask: Ask, server: Workbench) -> None:
    """A load whose files are on the disk already, as those of a folder are, is no download."""
    ask()
    endpoint = server._core.parts["sagemaker"]
    assert endpoint is not None
    endpoint.hand_over(server.settings)
    ask()
    ask("folder")
    told = [target for metric, target in metrics(server) if metric == "ModelDownloadingTime"]
    assert told == ["a.tar.gz"]
    assert server.endpoint.statistics["a.tar.gz"].loads == 2


def test_many_first_requests_load_once(server: Workbench) -> None:
    """Requests that come during a load wait for it, and there is one."""

    def post(_: int) -> Any:
        headers = {"x-amzn-sagemaker-target-model": "a.tar.gz"}
        return httpx.post(f"{server.url}/endpoints/mme/invocations", content="[1]", headers=headers)

    with ThreadPoolExecutor(8) as pool:
        assert {answer.text for answer in pool.map(post, range(40))} == {"[1.0]"}
    assert server.endpoint.statistics["a.tar.gz"].loads == 1


def test_a_changed_artifact(ask: Ask, prefix: Path, server: Workbench, onnx: bytes) -> None:
    """Other content under the same name is loaded, and the old model leaves."""
    ask()
    packed(prefix / "a.tar.gz", {"1/model.onnx": onnx, "more.bin": b"x" * 999})
    assert json.loads(ask()["Body"]) == [1, 2]
    told = server.endpoint
    assert (told.statistics["a.tar.gz"].loads, told.statistics["a.tar.gz"].unloads) == (2, 1)
    assert told.loaded_model_count == 1


def test_what_python_writes_is_no_change(ask: Ask, prefix: Path, server: Workbench) -> None:
    """The bytecode that Python leaves beside the modules of a folder is not another content."""
    ask("folder")
    (prefix / "folder" / "code" / "__pycache__").mkdir(parents=True)
    (prefix / "folder" / "code" / "__pycache__" / "helper.pyc").write_bytes(b"x")
    ask("folder")
    assert server.endpoint.statistics["folder"].loads == 1


def test_models_take_turns_in_a_budget(boto3: Any, tmp_path: Path) -> None:
    """In a budget for half of the models, the one that was used longest ago makes room."""
    prefix = tmp_path / "prefix"
    for number, folder in enumerate(write_models(tmp_path / "made", 4, 4 * 2**20)):
        (file,) = folder.rglob("*.onnx")
        packed(prefix / f"m{number}.tar.gz", {"model.onnx": file.read_bytes()})
    with Workbench(artifacts=prefix, budget="20MiB", device="cpu", cache="off") as workbench:
        ask = asker(boto3, workbench.url)
        for number in (0, 1, 0, 2, 0, 3, 0):
            assert ask(f"m{number}.tar.gz", "[]")["Body"] == "[]"
        told = workbench.endpoint
        assert told.loaded_model_count < 4
        unloads = [target for metric, target in metrics(workbench) if "Unloading" in metric]
        assert unloads
        assert "m0.tar.gz" not in unloads
        assert told.statistics["m0.tar.gz"].hits == 3
        assert workbench.plan().what_if().refusals == 0  # as here, where none was


ATTRIBUTES = """
NAME = "X-Amzn-SageMaker-Custom-Attributes"
def model_fn(model_dir): ...
def predict_fn(data, model): return data
def output_fn(prediction, accept, context):
    names = (NAME, "Accept", "X-Amzn-SageMaker-Inference-Id")
    told = [context.get_request_header(0, name) for name in names]
    context.set_response_header(0, NAME, " ".join(map(str, told)))
    context.set_response_status(409 if told[0] == "fail" else 200)
    return "told"
"""


def test_custom_attributes_reach_code(boto3: Any, prefix: Path) -> None:
    """Code reads CustomAttributes and InferenceId, and sets attributes and status of the answer."""
    packed(prefix / "c.tar.gz", {"code/inference.py": ATTRIBUTES.encode()})
    with Workbench(artifacts=prefix, artifact_code="on", device="cpu") as workbench:
        ask = asker(boto3, workbench.url)
        answer = ask("c.tar.gz", CustomAttributes="c=1", Accept="text/x", InferenceId="i 7")
        assert (answer["Body"], answer["CustomAttributes"]) == ("told", "c=1 text/x i 7")
        answer = ask("c.tar.gz", CustomAttributes="fail")
        assert refused(answer, 424, "ModelError")
        assert (answer["OriginalStatusCode"], answer["OriginalMessage"]) == (409, "told")


NAMES = """
def model_fn(model_dir): ...
def predict_fn(data, model, context):
    context.set_response_header(0, "X-Mine", "x")
    return list(context.get_all_request_header(0))
"""


def test_headers_that_the_platform_knows(prefix: Path) -> None:
    """Others reach neither the code nor the client."""
    packed(prefix / "n.tar.gz", {"code/inference.py": NAMES.encode()})
    names = ("target-model", "target-variant", "inference-id", "prefix-aware-id")
    values = ("n.tar.gz", "AllTraffic", "i 7", "p")
    platforms = {f"x-amzn-sagemaker-{name}": v for name, v in zip(names, values, strict=True)}
    with Workbench(artifacts=prefix, artifact_code="on", device="cpu") as workbench:
        url = f"{workbench.url}/endpoints/mme/invocations"
        answer = httpx.post(url, json=[1], headers={"x-mine": "x", **platforms})
    passed_on = [f"x-amzn-sagemaker-{name}" for name in ("inference-id", "target-model")]
    assert answer.json() == ["content-type", "accept", *passed_on]
    assert "x-mine" not in answer.headers


# ── what is refused ──


@pytest.mark.parametrize("mode", ["standard", "legacy"])
def test_errors_as_botocore_reads_them(boto3: Any, server: Workbench, mode: str) -> None:
    """An error of the model is ModelError with its status and text; it is asked once."""
    ask = asker(boto3, server.url, mode)
    answer = ask(body="{")
    assert refused(answer, 424, "ModelError").startswith(
        'Received client error (400) from model with message "'
    )
    assert answer["class"] == "ModelError"
    assert answer["OriginalStatusCode"] == 400
    assert json.loads(answer["OriginalMessage"])["type"] == "BadRequestException"
    assert answer["LogStreamArn"].startswith("arn:aws:logs:")
    assert answer["ResponseMetadata"]["RetryAttempts"] == 0
    assert answer["ResponseMetadata"]["RequestId"]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "CLIENT_ERROR_FROM_MODEL"),
        (499, "CLIENT_ERROR_FROM_MODEL"),
        (500, "INTERNAL_FAILURE_FROM_MODEL"),
        (507, "INTERNAL_FAILURE_FROM_MODEL"),
    ],
)
def test_whose_fault_an_error_is(status: int, code: str) -> None:
    """The body of a ModelError has AWS' ErrorCode, which clients other than boto3 read."""
    reply = endpoint_refused(ContainerRefused("no", status), "mme")
    assert (reply.status, json.loads(reply.parts[0])["ErrorCode"]) == (424, code)


@pytest.mark.parametrize("kind", [errors.ServerNotRunning, errors.QueueRefused])
def test_what_boto3_repeats(kind: type[errors.WorkbenchError]) -> None:
    """A request that cannot be answered now is ServiceUnavailable."""
    reply = endpoint_refused(kind("later"), "mme")
    assert (reply.status, dict(reply.headers)[b"x-amzn-errortype"]) == (503, b"ServiceUnavailable")


def test_what_no_endpoint_has(ask: Ask, server: Workbench) -> None:
    """A request that asks for such a thing is refused by its name, and nothing is loaded."""
    for target in ("a.tar.gz", None):
        assert refused(ask(target, SessionId="NEW_SESSION"), 400, "ValidationError") == (
            "Endpoint mme does not support x-amzn-sagemaker-session-id."
        )
    assert server.endpoint.statistics == {}


def test_what_the_platform_refuses(ask: Ask, boto3: Any, server: Workbench, prefix: Path) -> None:
    """Requests that never reach a container are ValidationError."""
    told = refused(ask(EndpointName="other"), 400, "ValidationError")
    assert told == "Endpoint other of account 000000000000 not found."
    assert refused(ask(None), 400, "ValidationError") == (
        "Endpoint mme is a multi-model endpoint and requires a target model header."
    )
    assert "Failed to download" in refused(ask("no.tar.gz"), 400, "ValidationError")
    assert server.endpoint.statistics == {}
    given = {"url": server.url, "EndpointName": "mme"}
    streamed = boto3("invoke_endpoint_with_response_stream", **given, Body="[]")
    assert "streaming" in refused(streamed, 400, "ValidationError")
    started = boto3("invoke_endpoint_async", **given, InputLocation="s3://a/b")
    assert "asynchronous" in refused(started, 400, "ValidationError")


def test_who_may_have_an_artifact_loaded(
    boto3: Any, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may run it, as on the platform; a request looks at the files of its artifact once."""
    found: list[str] = []
    find = ArtifactStore.find
    monkeypatch.setattr(ArtifactStore, "find", lambda it, to: found.append(to) or find(it, to))
    given = {"artifacts": prefix, "device": "cpu", "token": ACCESS_KEY}
    with Workbench(**given, restrict="model-repository") as workbench:
        for _ in range(2):
            assert json.loads(asker(boto3, workbench.url)()["Body"]) == [1, 2]
    assert found == ["a.tar.gz"] * 2


def test_no_multi_model_endpoint(boto3: Any) -> None:
    """Without a prefix there is no multi-model endpoint, in AWS' words."""
    with Workbench(device="cpu") as workbench:
        told = refused(asker(boto3, workbench.url)(), 400, "ValidationError")
    assert told == (
        "Endpoint mme is not a multi-model endpoint and does not support target model header."
    )


def test_a_model_is_an_endpoint(boto3: Any, sample_models: Path) -> None:
    """Without a prefix each model is an endpoint of its own name; others are not found."""
    with Workbench(sample_models, device="cpu") as workbench:
        ask = asker(boto3, workbench.url)
        answer = ask(None, EndpointName="wine", body=json.dumps([[0.0] * 13]))
        assert np.allclose(json.loads(answer["Body"]), workbench.infer("wine", [[0.0] * 13]))
        assert "not found" in refused(ask(None, EndpointName="vine"), 400, "ValidationError")
        assert "400" in refused(ask(None, EndpointName="wine", body="{"), 424, "ModelError")


def test_models_beside_a_multi_model_endpoint(
    boto3: Any, prefix: Path, sample_models: Path
) -> None:
    """The server's own models stay endpoints of their names, also beside one with artifacts."""
    row = json.dumps([[0.0] * 13])
    for named in ("", "mme"):
        settings = {"endpoints": named} if named else {}
        with Workbench(sample_models, artifacts=prefix, device="cpu", **settings) as workbench:
            ask = asker(boto3, workbench.url)
            answer = ask(None, EndpointName="wine", body=row)
            assert np.allclose(json.loads(answer["Body"]), workbench.infer("wine", [[0.0] * 13]))
            assert json.loads(ask()["Body"]) == [1, 2]
            assert "requires a target model" in refused(ask(None), 400, "ValidationError")
            told = refused(ask(None, EndpointName="vine"), 400, "ValidationError")
            assert ("not found" if named else "requires a target model") in told


@pytest.mark.parametrize("beside", [False, True])
def test_one_model_is_no_multi_model_endpoint(
    boto3: Any, sample_models: Path, prefix: Path, *, beside: bool
) -> None:
    """A refusal to stream names the endpoint, and does not call it what it is not."""
    artifacts = {"artifacts": prefix} if beside else {}
    with Workbench(sample_models, device="cpu", **artifacts) as workbench:
        answer = boto3(
            "invoke_endpoint_with_response_stream",
            url=workbench.url, mode="standard", EndpointName="wine", Body="[]",
        )  # fmt: skip
        told = refused(answer, 400, "ValidationError")
        assert told.startswith("Endpoint wine does not support response streaming: use invoke_")
        assert "generate_stream" in told  # which the answer to invoke_endpoint names as well


def copies(server: Workbench) -> list[Path]:
    """The folders of copies on disk, which are there from the first one on."""
    return list(Path(server._core.parts["sagemaker"]._store._root.name).iterdir())


def test_a_broken_archive(ask: Ask, prefix: Path, server: Workbench, onnx: bytes) -> None:
    """It is one ValidationError with its cure; nothing of it stays, other models go on."""
    ask()
    packed(prefix / "bad.tar.gz", {"../../out": b"x"})
    told = refused(ask("bad.tar.gz"), 400, "ValidationError")
    assert told.startswith("bad.tar.gz is not ")
    assert told.endswith(": write it with workbench pack, or tar -C FOLDER -czf model.tar.gz .")
    assert len(copies(server)) == 1
    assert server.endpoint.loaded_model_count == 1
    packed(prefix / "bad.tar.gz", {"model.onnx": onnx})
    assert json.loads(ask("bad.tar.gz")["Body"]) == [1, 2]


NO_MODELS: dict[str, tuple[dict[str, bytes], str]] = {
    "empty file": ({"model.onnx": b""}, "the file is empty"),
    "code": ({"code/inference.py": b""}, "artifact_code='on'"),
}


@pytest.mark.parametrize("kind", NO_MODELS)
def test_archives_without_a_model(
    ask: Ask, prefix: Path, server: Workbench, onnx: bytes, kind: str
) -> None:
    """What does not load is ModelError with the reason; its copy leaves, and a right one loads."""
    members, reason = NO_MODELS[kind]
    packed(prefix / "bad.tar.gz", members)
    answer = ask("bad.tar.gz")
    refused(answer, 424, "ModelError")
    assert answer["OriginalStatusCode"] == 400
    assert reason in json.loads(answer["OriginalMessage"])["message"]
    assert copies(server) == []
    assert server._core.models.added() == {}
    packed(prefix / "bad.tar.gz", {"model.onnx": onnx})
    assert json.loads(ask("bad.tar.gz")["Body"]) == [1, 2]


def test_a_compressed_request(server: Workbench) -> None:
    """A body in gzip is unpacked for the model; what cannot be unpacked is the client's fault."""
    headers = {"content-encoding": "gzip", "x-amzn-sagemaker-target-model": "a.tar.gz"}
    url = f"{server.url}/endpoints/mme/invocations"
    assert httpx.post(url, content=gzip.compress(b"[1, 2]"), headers=headers).json() == [1, 2]
    for coding in ("gzip", "br"):
        answer = httpx.post(url, content=b"[1, 2]", headers=headers | {"content-encoding": coding})
        assert (answer.status_code, answer.headers["x-amzn-errortype"]) == (400, "ValidationError")


def test_a_wrapping_folder(ask: Ask, prefix: Path, server: Workbench, onnx: bytes) -> None:
    """It is accepted, with a warning."""
    packed(prefix / "w.tar.gz", {"wrapper/model.onnx": onnx})
    assert json.loads(ask("w.tar.gz")["Body"]) == [1, 2]
    (warned,) = [e.event for e in server.events if isinstance(e.event, EndpointWarned)]
    assert "'wrapper'" in str(warned)


def test_a_full_disk(ask: Ask, server: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is 507, nothing stays of the archive, and there is another try."""
    from workbench.annexes.sagemaker import unpack

    def full(code: int, *_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "mkdtemp", partial(full, errno.ENOSPC))
        told = refused(ask(), 507, "InsufficientStorage")
    assert told == (
        "no temporary folder can be made (No space left on device): "
        "let TMPDIR be a folder of a disk with room"
    )
    for code in (errno.ENOSPC, errno.EDQUOT):  # of the disk, and of the user's part of it
        with monkeypatch.context() as patched:
            patched.setattr(unpack.shutil, "copyfileobj", partial(full, code))
            told = refused(ask(), 507, "InsufficientStorage")
        assert told.endswith(": free some, or let TMPDIR be a folder of a larger disk")
    assert copies(server) == []
    assert json.loads(ask()["Body"]) == [1, 2]


# ── clients that leave ──


@contextmanager
def asking(url: str, body: bytes, announced: int) -> Iterator[None]:
    """A client that asks for a.tar.gz, sends *body* of *announced* bytes, and leaves in the end."""
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port)) as connection:
        connection.sendall(
            b"POST /endpoints/mme/invocations HTTP/1.1\r\n"
            b"Host: %s\r\nX-Amzn-SageMaker-Target-Model: a.tar.gz\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (address.netloc, announced, body)
        )
        yield


def leaving(url: str, count: int, body: bytes, announced: int) -> None:
    """*count* such clients, which leave at once."""
    for _ in range(count):
        with asking(url, body, announced):
            pass


def test_a_run_that_nobody_waits_for(prefix: Path, server: Workbench, tmp_path: Path) -> None:
    """When the client of a run on this server leaves, the run ends."""
    endless = loop(tmp_path / "loop.onnx").read_bytes()
    packed(prefix / "a.tar.gz", {"model.onnx": endless})
    body = json.dumps({"n": 2**62, "x": np.eye(8).tolist()}).encode()

    def leases() -> int:
        return sum(
            server._core.status.of(model.id.name).leases for model in server.snapshot().models
        )

    with asking(server.url, body, len(body)):
        until(lambda: server.endpoint.loaded_model_count == 1)  # its load has a lease, too
        until(lambda: leases() == 1)
    until(lambda: leases() == 0)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Loads wait for it."""
    gate, load = threading.Event(), Container.load

    def waiting(it: Container, *given: str) -> None:
        assert gate.wait(30)
        load(it, *given)

    monkeypatch.setattr(Container, "load", waiting)
    yield gate
    gate.set()


def test_a_load_that_takes_long(boto3: Any, prefix: Path, gate: threading.Event) -> None:
    """A request is held, then told to come again, while the load goes on."""
    with Workbench(artifacts=prefix, device="cpu", wait="500ms") as workbench:
        ask = asker(boto3, workbench.url)
        answer = ask()
        refused(answer, 429, "ModelNotReadyException")
        assert answer["ResponseMetadata"]["RetryAttempts"] == 0
        gate.set()
        workbench._core.parts["sagemaker"].find("a.tar.gz").ready.result(30)
        assert json.loads(ask()["Body"]) == [1, 2]
        assert workbench.endpoint.statistics["a.tar.gz"].loads == 1


def test_a_client_that_asks_again(boto3: Any, prefix: Path, gate: threading.Event) -> None:
    """Botocore's legacy mode repeats a request whose model is not ready, until it is."""
    with (
        Workbench(artifacts=prefix, device="cpu", wait="50ms") as workbench,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(asker(boto3, workbench.url, "legacy"))
        until(lambda: workbench.endpoint.statistics.get("a.tar.gz", TargetStatistics()).misses > 1)
        gate.set()
        answer = asked.result(30)
    assert json.loads(answer["Body"]) == [1, 2]
    assert answer["ResponseMetadata"]["RetryAttempts"] > 0


def test_clients_that_leave(ask: Ask, server: Workbench, gate: threading.Event) -> None:
    """Whoever leaves during its upload or a load leaves no thread, lease or file behind."""

    def stage() -> None:
        leaving(server.url, 70, b"[1]", 100)  # during the upload
        leaving(server.url, 70, b"[1]", 3)  # during the load

    stage()
    before = set(threading.enumerate())
    stage()
    gate.set()
    assert json.loads(ask()["Body"]) == [1, 2]
    until(lambda: len(set(threading.enumerate()) - before) < 20)
    assert server.endpoint.statistics["a.tar.gz"].loads == 1
    assert len(copies(server)) == 1
    until(
        lambda: all(server._core.status.of(m.id.name).leases == 0 for m in server.snapshot().models)
    )


def test_a_run_without_memory(ask: Ask, server: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 507 for a run the model used longest ago leaves, and the run is tried again."""
    for target in ("a.tar.gz", "folder"):
        ask(target)
    errors_left = [errors.MemoryExhausted("no memory for this run")]
    now = server._core.requests.infer_now

    def short(name: str, *given: Any) -> Any:
        if errors_left and "folder" in name:
            raise errors_left[0]
        return now(name, *given)

    monkeypatch.setattr(server._core.requests, "infer_now", short)
    answer = ask("folder")  # nothing else could leave after "a"
    assert refused(answer, 424, "ModelError").startswith("Received server error (507) from")
    assert server.endpoint.statistics["a.tar.gz"].unloads == 1
    errors_left.clear()
    assert json.loads(ask("folder")["Body"]) == [1, 2]


def test_a_404_of_the_model_itself(boto3: Any, prefix: Path, tmp_path: Path) -> None:
    """It is passed on: the model is not loaded and run again, as one that has left."""
    code = (
        "from pathlib import Path\n"
        "def model_fn(folder): return 0\n"
        "def predict_fn(x, model, context):\n"
        f"    with Path({str(tmp_path / 'runs')!r}).open('a') as file: file.write('x')\n"
        "    context.set_response_status(404, 'no such user')\n"
        "    return []\n"
    )
    (prefix / "code" / "code").mkdir(parents=True)
    (prefix / "code" / "code" / "inference.py").write_text(code)
    with Workbench(artifacts=prefix, artifact_code="on", device="cpu") as workbench:
        answer = asker(boto3, workbench.url)("code", "[1]")
        refused(answer, 424, "ModelError")
        assert answer["OriginalStatusCode"] == 404
    assert (tmp_path / "runs").read_text() == "x"
