"""What a path under /v2/models/ names: model, version and verb, decoded once."""

from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import ModelNotFound, VersionNotFound
from workbench.http.app import _find, _places
from workbench.http.calls import HttpCall
from workbench.http.routes import GROUPS

deterministic = settings(derandomize=True, deadline=None, max_examples=150)
VERBS = (
    "infer", "ready", "config", "stats", "generate", "generate_stream", "docs",
    "docs/dataplane.json",
)  # fmt: skip


ANY: Any = SimpleNamespace(core=None)
OF_MODELS = [group for group in GROUPS if "model_name" in group.parameters]
PLACES = [place for place in _places(ANY, OF_MODELS) if place.path.startswith("/v2/models/{")]


class Target(NamedTuple):
    name: str
    version: int | None
    verb: str


def read(path: bytes) -> Target:
    """What the routes of models read in *path*."""
    found = _find(PLACES, path)
    if found is None:
        raise ModelNotFound("the path names no model")
    place, parameters = found
    call = HttpCall(parameters=parameters)
    return Target(call.name, call.version, place.path.partition("]")[2].removeprefix("/"))


def parsed(path: str) -> Target:
    return read(path.encode())


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("verb", ["", *VERBS])
def test_a_model_and_a_verb(verb: str, slash: str) -> None:
    """A path names a model, a version if it says one, and what is wanted of it."""
    after = f"/{verb}" if verb else ""
    assert parsed(f"/v2/models/m{after}{slash}") == Target("m", None, verb)
    assert parsed(f"/v2/models/m/versions/12{after}{slash}") == Target("m", 12, verb)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/b", "a/b"),
        ("a%2Fb", "a/b"),
        ("a%2fb/c", "a/b/c"),
        ("a%20b%25", "a b%"),
        ("a+b", "a+b"),
        ("a%2520b", "a%20b"),
        ("100%", "100%"),
        ("a%zz", "a%zz"),
        ("gr%C3%B6%C3%9Fe", "größe"),
        ("größe", "größe"),
        ("a%3Fb%23c", "a?b#c"),
        ("infer", "infer"),
        ("versions", "versions"),
        ("versions/1", "versions/1"),
        ("a/versions/1/b", "a/versions/1/b"),
        ("a/ready/b", "a/ready/b"),
        ("ready/infer/b", "ready/infer/b"),
        ("inferx", "inferx"),
        ("a/infer_", "a/infer_"),
    ],
)
def test_names(path: str, name: str) -> None:
    """A name is percent-decoded once, and may hold slashes and the words of the grammar."""
    assert parsed(f"/v2/models/{path}") == Target(name, None, "")
    assert parsed(f"/v2/models/{path}/infer") == Target(name, None, "infer")
    assert parsed(f"/v2/models/{path}/versions/3/ready") == Target(name, 3, "ready")


def test_the_last_words_are_the_grammar() -> None:
    """Of words that could be either, the last are the version and the verb."""
    assert parsed("/v2/models/a/infer/infer") == Target("a/infer", None, "infer")
    assert parsed("/v2/models/a/versions/1/versions/2") == Target("a/versions/1", 2, "")


@pytest.mark.parametrize("version", ["0", "01", "-1", "+1", "v1", "1.0", "%31", "1%20", "x"])
def test_versions_that_cannot_be(version: str) -> None:
    """A version is a number from 1, as it is written, and what is not one is shown."""
    for verb in ("", "/infer"):
        with pytest.raises(VersionNotFound) as caught:
            parsed(f"/v2/models/a%20b/versions/{version}{verb}")
        assert str(caught.value) == (
            f"model 'a b' has no version {version!r}: versions are numbers from 1"
        )


@pytest.mark.parametrize("version", [str(2**63), "9" * 31, "9" * 5000])
def test_a_version_that_is_too_high(version: str) -> None:
    """The highest is the highest that Triton's clients can name; of one too long for Python too."""
    assert parsed(f"/v2/models/m/versions/{2**63 - 1}").version == 2**63 - 1
    with pytest.raises(VersionNotFound) as caught:
        parsed(f"/v2/models/m/versions/{version}")
    assert str(caught.value) == (
        f"model 'm' has no version {version[:100]!r}: the highest that can be is {2**63 - 1}"
    )


def test_a_version_of_other_bytes() -> None:
    """A version that is no ASCII is refused in a message that can be sent."""
    with pytest.raises(VersionNotFound) as caught:
        parsed("/v2/models/m/versions/٣")
    assert str(caught.value).isascii()


@pytest.mark.parametrize(
    "path",
    ["", "/", "/v2", "/v2/models", "/v2/models/", "/v1/models/m", "v2/models/m", "/V2/models/m"],
)
def test_paths_without_a_model(path: str) -> None:
    """A path that is not of a model names none."""
    with pytest.raises(ModelNotFound, match=r"^the path names no model$"):
        parsed(path)


@pytest.mark.parametrize("name", [b"%ff", b"\xff", b"a%c3/infer", b"%ed%a0%80"])
def test_names_that_are_no_text(name: bytes) -> None:
    """A name is UTF-8."""
    with pytest.raises(ModelNotFound, match="is not UTF-8"):
        read(b"/v2/models/" + name)


@deterministic
@given(
    st.text(st.characters(codec="utf-8"), min_size=1),
    st.none() | st.integers(1, 10**18 - 1),
    st.sampled_from(["", *VERBS]),
    st.booleans(),
)
def test_quoted_names_come_back(name: str, version: int | None, verb: str, slashes: bool) -> None:
    """Any name, quoted as a client quotes it, is read as it was, with version and verb."""
    path = f"/v2/models/{quote(name, safe='/' if slashes else '')}"
    path += f"/versions/{version}" if version else ""
    path += f"/{verb}" if verb else ""
    if slashes and ("/" in name):  # what tritonclient leaves as it is may be the grammar's
        parsed(path)
    else:
        assert parsed(path) == Target(name, version, verb)
