"""The response cache alone, with books of a budget."""

from collections.abc import Callable

import numpy as np
import pytest

from workbench.core.inference.response_cache import _ENTRY_NBYTES, ResponseCache, key_of
from workbench.inference import InferRequest
from workbench.tensor import Tensor

MIB = 2**20
OWNER, OTHER = object(), object()


def tensor(nbytes: int, value: int = 0) -> Tensor:
    return Tensor("UINT8", np.full(nbytes, value, np.uint8))


class Ledger:
    """Memory of which *free_nbytes* can be booked."""

    def __init__(self, free_nbytes: int = 100 * MIB) -> None:
        self.free_nbytes = free_nbytes
        self.booked: list[int] = [0]

    def reserve(self, nbytes: int) -> bool:
        if nbytes - self.booked[-1] > 0 and nbytes > self.free_nbytes:
            return False
        self.booked.append(nbytes)
        return True


def kept(cache: ResponseCache, owner: object = OWNER) -> list[int]:
    """The numbers of the answers in the cache."""
    return [number for number in range(64) if cache.find(owner, bytes([number])) is not None]


def fill(cache: ResponseCache, count: int, nbytes: int, owner: object = OWNER) -> None:
    for number in range(count):
        cache.keep(owner, bytes([number]), {"y": tensor(nbytes, number)})


def test_the_least_recently_asked_for_leaves() -> None:
    """The cache never has more than its size; a use counts, and so does an entry itself."""
    ledger = Ledger()
    cache = ResponseCache(MIB, ledger.reserve)
    fill(cache, 4, MIB // 5)
    assert kept(cache) == [0, 1, 2, 3]
    assert cache.find(OWNER, b"\0") is not None
    cache.keep(OWNER, b"\4", {"y": tensor(MIB // 5)})
    assert kept(cache) == [0, 2, 3, 4]
    assert max(ledger.booked) <= MIB


def test_an_answer_larger_than_the_cache_is_not_kept() -> None:
    """It pushes nothing out."""
    cache = ResponseCache(MIB, Ledger().reserve)
    fill(cache, 1, MIB // 2)
    cache.keep(OWNER, b"\5", {"y": tensor(MIB)})
    assert kept(cache) == [0]


def test_an_answer_as_large_as_the_cache_is_kept() -> None:
    """It pushes all others out, and no more than the size of the cache is booked."""
    ledger = Ledger()
    cache = ResponseCache(10_007, ledger.reserve)
    fill(cache, 4, 1000)
    cache.keep(OWNER, b"\5", {"y": tensor(10_007 - _ENTRY_NBYTES)})
    assert kept(cache) == [5]
    assert max(ledger.booked) == 10_007


def test_an_answer_that_is_kept_again_takes_its_room_once() -> None:
    """Two equal requests at a time both run, and both answers are to be kept."""
    cache = ResponseCache(MIB, Ledger().reserve)
    for _ in range(9):
        fill(cache, 3, MIB // 5)
    assert kept(cache) == [0, 1, 2]


@pytest.mark.parametrize("texts", [[b"a" * MIB], [b""] * (MIB // 16)])
def test_texts_take_the_room_of_their_bytes(texts: list[bytes]) -> None:
    """Long ones take what they are long, and each one, however short, takes some."""
    cache = ResponseCache(MIB, Ledger().reserve)
    cache.keep(OWNER, b"\0", {"y": Tensor("BYTES", np.array(texts, object))})
    assert kept(cache) == []


def test_memory_that_is_given_back_may_be_wanted_at_once() -> None:
    """A model that waits for it asks the cache for more while the cache still gives it back."""
    ledger = Ledger()

    def reserve(nbytes: int) -> bool:
        is_less = nbytes < ledger.booked[-1]
        is_booked = ledger.reserve(nbytes)
        if is_less:
            cache.shrink(MIB)
        return is_booked

    cache = ResponseCache(MIB, reserve)
    fill(cache, 2, MIB // 5)
    fill(cache, 2, MIB // 5, OTHER)
    cache.forget(OWNER)
    assert kept(cache, OTHER) == []
    assert ledger.booked[-1] == 0


def test_a_cache_of_a_few_bytes() -> None:
    """It keeps nothing, and models may come and go."""
    cache = ResponseCache(8, Ledger().reserve)
    fill(cache, 1, 1)
    cache.forget(OWNER)
    cache.shrink(MIB)
    assert kept(cache) == []


def test_what_is_kept_is_a_copy() -> None:
    """Neither who gave an answer nor who gets it can change it."""
    cache = ResponseCache(MIB, Ledger().reserve)
    given = tensor(3)
    cache.keep(OWNER, b"", {"y": given})
    given.array[:] = 9
    for _ in range(2):
        found = cache.find(OWNER, b"")
        assert found is not None
        assert found["y"].array.tolist() == [0, 0, 0]
        found["y"].array[:] = 8


def test_an_answer_that_cannot_be_copied_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no memory for a copy, the answer itself is still given."""

    def fails(_: object) -> None:
        raise MemoryError("scripted")

    cache = ResponseCache(MIB, Ledger().reserve)
    with monkeypatch.context() as patch:
        patch.setattr("workbench.core.inference.response_cache.copies_of", fails)
        fill(cache, 1, 1000)
    assert kept(cache) == []


def test_models_have_answers_of_their_own() -> None:
    """The same key of another model is another answer; a model that leaves takes only its own."""
    ledger = Ledger()
    cache = ResponseCache(MIB, ledger.reserve)
    fill(cache, 2, 1000)
    fill(cache, 3, 1000, OTHER)
    cache.forget(OWNER)
    assert (kept(cache), kept(cache, OTHER)) == ([], [0, 1, 2])
    cache.forget(OTHER)
    assert ledger.booked[-1] == 0


def test_it_takes_only_memory_that_is_free() -> None:
    """Where no more can be booked, older answers leave; where nothing can, nothing is kept."""
    cache = ResponseCache(16 * MIB, Ledger(2 * MIB).reserve)
    fill(cache, 4, MIB - 1024)
    assert kept(cache) == [2, 3]
    none = ResponseCache(16 * MIB, Ledger(0).reserve)
    fill(none, 2, 1000)
    assert kept(none) == []


@pytest.mark.parametrize(("nbytes", "left"), [(0, 4), (1, 3), (2 * MIB, 2), (64 * MIB, 0)])
def test_answers_leave_for_a_model(nbytes: int, left: int) -> None:
    """As many leave as are needed, the oldest first, and the books know at once."""
    ledger = Ledger()
    cache = ResponseCache(16 * MIB, ledger.reserve)
    fill(cache, 4, MIB - 1024)
    cache.shrink(nbytes)
    assert kept(cache) == list(range(4 - left, 4))
    assert ledger.booked[-1] == left * MIB


def request(**changed: object) -> InferRequest:
    given = {"x": Tensor("INT32", np.arange(6, dtype=np.int32).reshape(2, 3))}
    return InferRequest(**{"model": "m", "inputs": given, **changed})  # type: ignore[arg-type]


def texts(*elements: bytes | None) -> dict[str, Tensor]:
    return {"x": Tensor("BYTES", np.array(elements, object))}


NUMBERS = np.arange(6, dtype=np.int32)


OTHERS: list[Callable[[], InferRequest]] = [
    lambda: request(outputs=("y",)),
    lambda: request(classes={"y": 2}),
    lambda: request(scalars_of_one=True),
    lambda: request(inputs={"z": Tensor("INT32", NUMBERS.reshape(2, 3))}),
    lambda: request(inputs={"x": Tensor("INT32", NUMBERS.reshape(3, 2))}),
    lambda: request(inputs={"x": Tensor("UINT32", NUMBERS.astype(np.uint32).reshape(2, 3))}),
    lambda: request(inputs={"x": Tensor("INT32", NUMBERS.reshape(2, 3) + 1)}),
    lambda: request(inputs=texts(b"ab", b"c")),
    lambda: request(inputs=texts(b"a", b"bc")),
    lambda: request(inputs=texts(b"abc")),
    lambda: request(inputs=texts(b"", None)),
    lambda: request(inputs=texts(None, b"")),
    request,
]


def test_the_keys_of_different_requests() -> None:
    """Names, datatypes, shapes, elements and wanted outputs make a request another one."""
    keys = [key_of(make()) for make in OTHERS]
    assert len(set(keys)) == len(OTHERS)
    assert keys == [key_of(make()) for make in OTHERS]


def test_the_key_of_the_same_request() -> None:
    """Where its elements lie in memory, its id, its parameters and the order of names do not."""
    apart = np.zeros((2, 6), np.int32)
    apart[:, ::2] = NUMBERS.reshape(2, 3)
    inputs = {"x": Tensor("INT32", apart[:, ::2])}
    assert key_of(request(inputs=inputs, id="1", parameters={"priority": 2})) == key_of(request())
    two = {"x": tensor(1), "z": tensor(2)}
    best = {"y": 1, "t": 2}
    assert key_of(request(inputs=two, classes=best)) == key_of(
        request(inputs=dict(reversed(two.items())), classes=dict(reversed(best.items())))
    )
