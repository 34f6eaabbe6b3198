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
    """Serves the file *a*, the function *f*, and the ensemble *e* of both."""
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "config.pbtxt").write_text(ensemble_text("a x=in y=t", "f x=t y=out"))
    core = fake_core(tmp_path, FakeLoader({"a": 40}))
    given, taken = TensorSpec("x", "FP32", (-1,)), TensorSpec("y", "FP32", (-1,))
    core.register(ModelId("f", 1), FunctionModel(lambda x: x, (given,), (taken,), 0, 0, None))
    with opened(core):
        yield core


GOOD = InferRequest("a", {"x": Tensor.of(np.ones(1, np.float32))})


def ask(core: ServerCore, model: str, name: str = "x") -> None:
    """Ask *model*, with an input of that *name*."""
    core.infer(InferRequest(model, {name: Tensor.of(np.ones(1, np.float32))}))


def test_a_request_is_one_use(core: ServerCore, uses: Counter[str]) -> None:
    """Whether its model has to be loaded, runs in a thread, or runs on the spot."""
    ask(core, "a")
    assert uses == {"a": 1}
    ask(core, "a")
    read = InferRequest("a", {"x": Tensor.of(np.ones(1, np.float32))})
    assert core.infer_now("a", None, lambda _: read) is not None
    ask(core, "f")
    assert uses == {"a": 3, "f": 1}


def test_requests_that_run_together(core: ServerCore, uses: Counter[str]) -> None:
    """Each is one use but for those that are not answered on the spot; an error is one too."""
    ask(core, "a")
    uses.clear()
    bad = InferRequest("a", {"unknown": Tensor.of(np.ones(1, np.float32))})
    unreadable = InvalidRequest("not JSON")

    def read(_: Describe) -> list[AnyRequest]:
        return [GOOD, bad, unreadable, GOOD]

    answers = core.infer_all_now("a", None, read)
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
    unread = core.infer_all_now(name, None, lambda _: pytest.fail("it was read"))
    assert unread is None
    assert not uses


def test_uses_together_weigh_as_one_by_one(tmp_path: Path) -> None:
    """What policies go by is the same, whether requests came together or one after the other."""
    weights = []
    for requests in ([[GOOD]] * 4, [[GOOD] * 4]):
        with opened(fake_core(tmp_path, FakeLoader({"a": 40}))) as core:
            ask(core, "a")
            for each in requests:
                answers = core.infer_all_now("a", None, lambda _, each=each: each)
                assert answers is not None
                assert None not in answers
            residents = core._running().residency._residents
            (resident,) = residents.all()
            usage = resident.usage
            weights.append((usage.then, usage.last_use, resident.place, residents.last_use))
    assert weights[0] == weights[1]
    assert weights[0][0] > 4.9


def test_an_attempt_is_no_use(core: ServerCore, uses: Counter[str]) -> None:
    """A request that cannot be answered on the spot has used no model yet."""
    request = InferRequest("f", {"x": Tensor.of(np.ones(1, np.float32))})
    assert core.infer_now("f", None, lambda _: request) is None
    assert uses == {}


def test_a_request_that_fails_on_the_spot_is_a_use(core: ServerCore, uses: Counter[str]) -> None:
    """As one that fails in a thread is."""
    ask(core, "a")
    with pytest.raises(InvalidRequest):
        ask(core, "a", "unknown")
    assert uses == {"a": 2}


def test_a_request_to_an_ensemble(core: ServerCore, uses: Counter[str]) -> None:
    """It is one use of the ensemble and of each of its parts, also where it is first attempted."""
    core.load("e")
    uses.clear()
    for _ in range(3):
        ask(core, "e", "in")
    assert uses == {"e": 3, "a": 3, "f": 3}


def test_a_request_to_an_ensemble_of_ensembles(
    core: ServerCore, uses: Counter[str], tmp_path: Path
) -> None:
    """It is one use of each part, loaded or not, though the inner parts are known only later."""
    for name, part in (("o", "e"), ("oo", "o")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(ensemble_text(f"{part} in=in out=out"))
    for _ in range(2):
        uses.clear()
        ask(core, "oo", "in")
        assert uses == dict.fromkeys(("oo", "o", "e", "a", "f"), 1)


def test_a_load_by_hand_is_one_use(core: ServerCore, uses: Counter[str]) -> None:
    """Also of what is loaded already, and of each part of an ensemble."""
    core.load("a")
    core.load("a")
    assert uses == {"a": 2}
    uses.clear()
    core.load("e")
    assert uses == {"e": 1, "a": 1, "f": 1}
