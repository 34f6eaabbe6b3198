"""``wb["iris"]``: the card of a model, and the calls that it shows."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from workbench import ModelNotFound, Workbench
from workbench.views.times import clock_time

CLIENTS = Path(__file__).parents[2] / ".venv-clients" / "bin" / "python"
TOKEN = "the-token-of-this-test"


@pytest.fixture(scope="module")
def wb(sample_models: Path) -> Iterator[Workbench]:
    """A server that asks for a token, of the sample models and some functions."""
    workbench = Workbench(sample_models, device="cpu", token=TOKEN)
    pair, large = ("FP32", [-1, 2]), ("FP32", [-1, 3, 224, 224])
    texts = ("BYTES", [-1, 1])
    workbench.register(
        lambda a, t: (a, t), name="two", inputs={"a": pair, "t": texts},
        outputs={"b": pair, "u": texts},
    )  # fmt: skip
    workbench.register(lambda x: x, name="large", inputs={"x": large}, outputs={"y": large})
    workbench.register(lambda x: x, name="<b>", inputs={"<i>": pair}, outputs={"y": pair})
    with workbench:
        yield workbench


def test_what_a_card_shows(wb: Workbench) -> None:
    """Signature, state, memory, an example, the clients and the page, as text and as HTML."""
    card = wb["diabetes"]  # which no other test loads
    text = repr(card).splitlines()
    assert text[0] == "diabetes, version 1, not loaded"
    assert text[1].split() == ["takes", "features", "FP32", "[-1,", "10]"]
    assert text[2].split() == ["gives", "progression", "FP32", "[-1,", "1]"]
    assert any(line.startswith("memory") and "once it is loaded" in line for line in text)
    assert "code     calls[...] for Python, boto3, tritonclient, requests, curl" in text
    assert f"docs     {wb.url}/v2/models/diabetes/docs" in text
    html = card._repr_mimebundle_()["text/html"]
    for part in ("not loaded", "features", "<details>", "Configuration", "onnxruntime_onnx"):
        assert part in html


def test_it_is_of_now(wb: Workbench) -> None:
    """A card that is kept shows what has changed since, and can be called."""
    card = wb["wine"]
    answer = card(np.zeros((2, 13)))
    assert np.array_equal(answer, wb.infer("wine", np.zeros((2, 13))))
    assert card(features=np.zeros((1, 13)), version=1).shape == (1, 3)
    assert repr(card).startswith("wine, version 1, ready\n")
    wb.pin("wine")
    assert repr(card).startswith("wine, version 1, ready, pinned\n")
    assert "pinned: it is never evicted" in card._repr_mimebundle_()["text/html"]
    wb.unpin("wine")
    assert card.status.nbytes > 0
    assert card.status.requests.succeeded >= 3
    assert card.inputs["features"].shape == (-1, 13)
    assert list(card.outputs) == ["probabilities"]
    assert card.config["platform"] == "onnxruntime_onnx"


@pytest.mark.parametrize("name", ["wine", "two", "digits_reader", "digits_conv", "large"])
def test_the_example_is_an_input(wb: Workbench, name: str) -> None:
    """What ``example`` holds is answered."""
    card = wb[name]
    assert card(card.example) is not None


@pytest.mark.parametrize("clients", ["Python tritonclient requests", "curl", "boto3"])
def test_the_calls_work_as_they_are_pasted(wb: Workbench, clients: str) -> None:
    """Each is answered in another process; the token is not in it, but in a variable."""
    names = ("wine", "two", "digits_reader")
    codes = [wb[name].calls[client] for client in clients.split() for name in names]
    assert TOKEN not in "".join(codes)
    python = CLIENTS if clients == "boto3" else sys.executable
    if not Path(python).exists():
        pytest.skip("there is no .venv-clients: make clients makes it")
    if clients == "curl":
        command = ["bash", "-c", " && ".join(f"{code} --fail -sS" for code in codes)]
    else:  # one process for all, each with names of its own
        command = [python, "-c", "import sys\nfor code in sys.argv[1:]: exec(code, {})", *codes]
    before = [wb[name].status.requests.succeeded for name in names]
    environ = {"WORKBENCH_TOKEN": TOKEN, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent",
               "PYTHONPATH": str(Path(__file__).parents[2])}  # fmt: skip
    subprocess.run(command, check=True, env=environ, timeout=200, capture_output=True)
    now = [wb[name].status.requests.succeeded for name in names]
    assert now == [count + len(clients.split()) for count in before]


def test_large_inputs_are_not_written_out(wb: Workbench) -> None:
    """Of a model of large tensors only clients are shown that take arrays."""
    calls = wb["large"].calls
    assert list(calls) == ["Python", "tritonclient"]
    assert "np.zeros([1, 3, 224, 224], 'float32')" in calls["Python"]
    assert len(repr(wb["large"])) < 1000


def test_a_name_that_is_none(wb: Workbench) -> None:
    """It is a KeyError, which says in one line which names are like it."""
    with pytest.raises(KeyError) as caught:
        wb["wime"]
    assert isinstance(caught.value, ModelNotFound)
    assert str(caught.value) == "there is no model 'wime'; did you mean 'wine'?"
    with pytest.raises(ModelNotFound, match="available: <b>, diabetes, "):
        wb["0"]
    with pytest.raises(KeyError, match="the repository is empty"):
        Workbench()["a"]
    assert "wine" in wb
    assert "wime" not in wb
    assert list(wb) == list(wb.names)


def test_tab_completes_the_names(wb: Workbench) -> None:
    """Behind ``wb["`` IPython offers the models."""
    shell = InteractiveShell()
    shell.user_ns["wb"] = wb
    with provisionalcompleter():
        found = [each.text for each in shell.Completer.completions('wb["digits_c', 12)]
    assert any("digits_conv" in text for text in found)
    assert not any("wine" in text for text in found)


def test_the_list_of_models(wb: Workbench) -> None:
    """Each model has its inputs and outputs, in the list's text, its HTML and its table."""
    wb.load("wine")
    rows = {model.id.name: model for model in wb.models}
    assert rows["wine"].inputs["features"].shape == (-1, 13)
    assert list(rows["two"].outputs) == ["b", "u"]
    line = next(line for line in repr(wb.models).splitlines() if line.startswith("wine"))
    assert "features FP32[-1,13]" in line
    assert "probabilities FP32[-1,3]" in wb.models._repr_html_()
    table = wb.models.df().set_index("name")
    assert table.loc["wine", "inputs"] == "features FP32[-1,13]"
    assert table.loc["wine", "nbytes"] == wb["wine"].status.nbytes > 0
    assert table.loc["digits", "state"] == "UNAVAILABLE"
    assert "features" in repr(wb.load("wine"))


def test_a_part_of_a_list(wb: Workbench) -> None:
    """A part of the models, or of the events, is shown as all are."""
    wb.load("wine")
    assert repr(wb.events[-1:]).startswith(clock_time(wb.events[-1].at_s))
    assert repr(wb.models[:1]).splitlines()[0].split()[:2] == ["model", "version"]
    assert wb.models[0].id.name in repr(wb.models[:1])


def test_names_are_escaped(wb: Workbench) -> None:
    """Names of models and tensors are text in a card."""
    html = wb["<b>"]._repr_mimebundle_()["text/html"]
    assert "&lt;i&gt;" in html
    assert "<i>" not in html


def test_a_broken_model_has_a_card(tmp_path: Path) -> None:
    """It says why; and a card of a server that was stopped says that."""
    (tmp_path / "bad" / "1").mkdir(parents=True)
    (tmp_path / "bad" / "1" / "model.onnx").write_bytes(b"no model")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.pbtxt").write_text("max_batch_size: ?")
    with Workbench(tmp_path, device="cpu") as wb:
        card = wb["bad"]
        assert "bad" in repr(card)
        assert ", broken: " in repr(wb["empty"])
        assert ", broken: " in repr(card)
        assert "broken" in card._repr_mimebundle_()["text/html"]
        assert card.inputs == {}
        assert [model.inputs for model in wb.models] == [{}, {}]
    assert "not running" in repr(card)
    assert "not running" in card._repr_mimebundle_()["text/plain"]
