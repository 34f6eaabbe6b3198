"""The notebook about ensembles, run on a real headless kernel."""

import pytest
from headless import run, shipped, text


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    """What each cell put out, by its first line."""
    return {cell.source.split("\n")[0]: text(cell) for cell in run(shipped("ensembles"))}


def test_a_picture_becomes_a_word(outputs: dict[str, str]) -> None:
    """The picture is read rightly, and each part counted its request."""
    assert outputs['wb.infer("digits_reader", png)["label"]'] == "array(['2'], dtype=object)"
    rows = [row.split() for row in outputs["wb.models"].splitlines()]
    parts = [row for row in rows if row[0].startswith(("digits_c", "digits_l", "digits_p"))]
    assert [row[2] for row in parts] == ["ready"] * 3


def test_a_function_helps(outputs: dict[str, str]) -> None:
    """Photographs are read badly as they are, and well once the function has cleaned them up."""
    told = outputs['held_out = np.load("../sample_models/held_out.npz")'].splitlines()
    shares = [float(line.split(":")[1].split("%")[0]) for line in told[:2]]
    assert shares[0] < 60
    assert shares[1] > 97


def test_a_part_goes_and_comes_back(outputs: dict[str, str]) -> None:
    """Which part is missing is told, by way of the ensemble between; and it comes back."""
    told = outputs['wb.unload("digits_conv")']
    assert "its part digits_reader:1 is not loaded (its part digits_conv:1 is" in told
    assert "'2'" in outputs['wb.infer("photo_reader", photos[:3])']


def test_a_mistake_is_told_in_one_line(outputs: dict[str, str]) -> None:
    """By its step and its tensor."""
    (told,) = (text for text in outputs.values() if "LoadFailed" in text)
    assert len(told.splitlines()) == 1
    assert "step 2 (digits_reader) takes tensor 'clean', which no step gives" in told
