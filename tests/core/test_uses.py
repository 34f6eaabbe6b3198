"""Uses of models, which policies such as ``lfu`` go by: one for each request or load by hand."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ensemble_texts import ensemble_text
from inside import opened

from doubles import FakeLoader, fake_core
from workbench.core import AnyRequest, Describe, ServerCore
from workbench.errors import InvalidRequest
from workbench.inference import InferRequest, InferResponse
from workbench.model import FunctionModel, ModelId, TensorSpec
from workbench.residency.residents import Residents
from workbench.residency.state import Resident
from workbench.tensor import Tensor


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each model was used so far, by its name."""
    counted: Counter[str] = Counter()
    use = Residents.use

    def count(residents: Residents, resident: Resident, times: int = 1) -> None:
        counted[resident.id.name] += times
        use(residents, resident, times)

    monkeypatch.setattr(Residents, "use", count)
    return counted


@pytest.fixture
def core(tmp_path: Path) -> Iterator[ServerCore]:
    """Serves the file *a*, the function *f*, the ensemble *e* of both, *o* of it, *oo* of *o*."""
    steps = {"e": ("a x=in y=t", "f x=t y=out"), "o": ("e in=in out=out",)}
    for name, parts in (steps | {"oo": ("o in=in out=out",)}).items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(ensemble_text(*parts))
    core = fake_core(tmp_path, FakeLoader({"a": 40}))
    given, taken = TensorSpec("x", "FP32", (-1,)), TensorSpec("y", "FP32", (-1,))
    core.models.register(
        ModelId("f", 1), FunctionModel(lambda x: x, (given,), (taken,), 0, 0, None)
    )
    with opened(core):
        yield core


def asking(model: str, name: str = "x") -> InferRequest:
    """A request to *model*, with an input of that *name*."""
    return InferRequest(model, {name: Tensor.of(np.ones(1, np.float32))})


GOOD = asking("a")


# What is done with which model, and the uses then.
USES = {
    "a request is one, whether its model has to be loaded, runs in a thread, or on the spot":
        ("ask a, ask a, now a, ask f", "a 3 f 1"),
    "a request that cannot be answered on the spot has used no model yet": ("now f", ""),
    "one that fails on the spot is one, as one that fails in a thread": ("ask a, wrong a", "a 2"),
    "one to an ensemble is one of each part too, also where it is first attempted":
        ("load e, ask e, ask e, ask e", "e 4 a 4 f 4"),
    "so it is of what parts consist of, though this is known only later":
        ("ask oo", "oo 1 o 1 e 1 a 1 f 1"),
    "and once they are loaded": ("ask oo, ask oo", "oo 2 o 2 e 2 a 2 f 2"),
    "a load by hand is one, also of what is loaded": ("load a, load a", "a 2"),
    "a load of an ensemble is one of each part": ("load a, load e", "e 1 a 2 f 1"),
}  # fmt: skip


@pytest.mark.parametrize(("done", "told"), USES.values(), ids=USES)
def test_what_is_a_use(core: ServerCore, uses: Counter[str], done: str, told: str) -> None:
    """Each request and each load by hand is one use of each model that it takes."""
    for each in done.split(", "):
        verb, name = each.split()
        match verb:
            case "ask":
                core.requests.infer(asking(name, "x" if name in "af" else "in"))
            case "wrong":
                with pytest.raises(InvalidRequest):
                    core.requests.infer(asking(name, "unknown"))
            case "now":
                answer = core.requests.infer_now(name, None, lambda _, name=name: asking(name))
                assert (answer is None) == (name == "f")
            case "load":
                core.models.load(name)
    words = told.split()
    assert uses == dict(zip(words[::2], map(int, words[1::2]), strict=True))


def test_requests_that_run_together(core: ServerCore, uses: Counter[str]) -> None:
    """Each is one use but for those that are not answered on the spot; an error is one too."""
    core.requests.infer(GOOD)
    uses.clear()
    bad, unreadable = asking("a", "unknown"), InvalidRequest("not JSON")

    def read(_: Describe) -> list[AnyRequest]:
        return [GOOD, bad, unreadable, GOOD]

    answers = core.requests.infer_all_now("a", None, read)
    assert answers is not None
    first, refused, unread, last = answers
    assert isinstance(first, InferResponse)
    assert isinstance(last, InferResponse)
    assert "has no input 'unknown'" in str(refused)
    assert unread is unreadable
    assert uses == {"a": 4}


@pytest.mark.parametrize("name", ["f", "nobody", "e", "a"])
def test_requests_that_cannot_run_together(name: str, core: ServerCore, uses: Counter[str]) -> None:
    """They are not read: each is to be asked for by itself."""
    unread = core.requests.infer_all_now(name, None, lambda _: pytest.fail("it was read"))
    assert unread is None
    assert not uses


def test_uses_together_weigh_as_one_by_one(tmp_path: Path) -> None:
    """What policies go by is the same, whether requests came together or one after the other."""
    weights = []
    for requests in ([[GOOD]] * 4, [[GOOD] * 4]):
        with opened(fake_core(tmp_path, FakeLoader({"a": 40}))) as core:
            core.requests.infer(GOOD)
            for each in requests:
                answers = core.requests.infer_all_now("a", None, lambda _, each=each: each)
                assert answers is not None
                assert None not in answers
            residents = core._running().residency._residents
            (resident,) = residents.all()
            usage = resident.usage
            weights.append((usage.then, usage.last_use, resident.place, residents.last_use))
    assert weights[0] == weights[1]
    assert weights[0][0] > 4.9
