"""Models: names, states, declared shapes, and which versions are served."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import ModelNotFound
from workbench.model import (
    Footprint,
    ModelConfig,
    ModelId,
    ModelState,
    TensorSpec,
    VersionPolicy,
    check_name,
)


def test_an_id_is_a_name_and_a_version() -> None:
    """A model's id reads name:version and sorts by name, then by number."""
    assert str(ModelId("digits", 3)) == f"{ModelId('digits', 3)}" == "digits:3"
    assert sorted([ModelId("b", 1), ModelId("a", 10), ModelId("a", 9)]) == [
        ModelId("a", 9),
        ModelId("a", 10),
        ModelId("b", 1),
    ]


def test_states_have_tritons_words() -> None:
    """The states are called what Triton's repository index calls them."""
    assert {state.value for state in ModelState} == {
        "UNAVAILABLE", "LOADING", "READY", "UNLOADING",
    }  # fmt: skip


@pytest.mark.parametrize("nbytes", [0, 60, 140, 200])
def test_a_footprint_hides_no_more_than_it_is(nbytes: int) -> None:
    """At most all of a model is pages of a file, also if a load measured less than the file has.

    The engine keeps equal weights once, and the file has each of them.
    """
    estimated = Footprint(weights_nbytes=100, other_nbytes=40, mapped_nbytes=100)
    changed = estimated.of(nbytes)
    assert (changed.nbytes, changed.unseen_nbytes) == (nbytes, min(nbytes, 100))


@pytest.mark.parametrize(
    ("declared", "shape", "fits"),
    [
        ((), (), True),
        ((), (1,), False),
        ((3,), (3,), True),
        ((3,), (4,), False),
        ((3,), (), False),
        ((-1,), (0,), True),
        ((-1,), (7,), True),
        ((-1, 4), (9, 4), True),
        ((-1, 4), (9, 5), False),
        ((-1, 4), (4,), False),
        ((-1, 4), (1, 1, 4), False),
        ((2, -1, 3), (2, 0, 3), True),
    ],
)
def test_accepts(declared: tuple[int, ...], shape: tuple[int, ...], fits: bool) -> None:
    """A shape fits with the same rank and the same sizes, where -1 is any size."""
    assert TensorSpec("x", "FP32", declared).accepts(shape) is fits


@pytest.mark.parametrize(
    ("policy", "versions", "served"),
    [
        (VersionPolicy(), (1, 3, 2), (3,)),
        (VersionPolicy(), (9, 10), (10,)),
        (VersionPolicy(), (), ()),
        (VersionPolicy(latest=2), (1, 3, 2), (2, 3)),
        (VersionPolicy(latest=5), (3, 1), (1, 3)),
        (VersionPolicy(latest=0), (3, 1, 2), (1, 2, 3)),
        (VersionPolicy(specific=(3, 1)), (1, 2, 3), (1, 3)),
        (VersionPolicy(specific=(3, 7)), (1, 2, 3), (3,)),
        (VersionPolicy(specific=(7,)), (1, 2, 3), ()),
    ],
)
def test_version_policy(
    policy: VersionPolicy, versions: tuple[int, ...], served: tuple[int, ...]
) -> None:
    """The highest, all, or the named ones of the versions that are there, ascending."""
    assert policy.choose(versions) == served


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    st.lists(st.integers(1, 50), unique=True).map(tuple),
    st.integers(0, 5),
    st.lists(st.integers(1, 50), max_size=4).map(tuple),
)
def test_version_policy_invents_nothing(
    versions: tuple[int, ...], latest: int, specific: tuple[int, ...]
) -> None:
    """Whatever the policy, what is served is there, ascending, each once, the highest with it."""
    served = VersionPolicy(latest, specific).choose(versions)
    assert list(served) == sorted(set(served))
    assert set(served) <= set(versions)
    if versions and not specific:
        assert served[-1] == max(versions)


def test_configurations_share_nothing() -> None:
    """Two configurations do not share their labels."""
    first, second = ModelConfig("a"), ModelConfig("b")
    assert first.labels is not second.labels
    assert first.model_filename == "model.onnx"


@pytest.mark.parametrize(
    "name",
    ["digits", "a", "a/b", "a\\b", "..a", "a..", "a.b", "...", ".hidden", "-1", "a b", "ä", "模型",
     "👩‍🔬", "%2e%2e", "x" * 300, "model.onnx", "~", "a:b", "a\u00a0b"],
)  # fmt: skip
def test_names_that_can_be(name: str) -> None:
    """A name may hold spaces, dots, slashes and any script, and comes back unchanged."""
    assert check_name(name) is name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "/", "/a", "a/", "a//b", "../a", "a/..", "a/../b", "a/./b", "..\\a", "a\\..",
     "\\", "a\\\\b", "a\\../b", "\0", "a\0b", "a\nb", "a\rb", "\x7f", "\x85", "a\u2028b", "\ud800",
     "a\udcffb"],
)  # fmt: skip
def test_names_that_cannot_be(name: str) -> None:
    """A name that climbs out of a folder, is cut by a NUL, or breaks a line is no model's."""
    with pytest.raises(ModelNotFound, match=r"cannot be the name of a model$") as caught:
        check_name(name)
    assert len(str(caught.value).splitlines()) == 1
    str(caught.value).encode()


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.text(st.sampled_from("a./\\\0\n")) | st.text(st.characters()))
def test_a_name_stays_inside(name: str) -> None:
    """Whatever passes has no part that is empty or climbs, on any system, and is one line."""
    try:
        check_name(name)
    except ModelNotFound:
        return
    for separated in (name.split("/"), name.replace("\\", "/").split("/")):
        assert not {"", ".", ".."} & set(separated)
    assert len(name.splitlines()) == 1
    assert name.encode()
