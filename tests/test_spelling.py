"""What a misspelt word or folder was meant to be."""

from pathlib import Path

from workbench.spelling import meant, meant_folder, no_folder


def test_the_most_alike_is_named() -> None:
    """Of the known words, the one most like it is named; none if none is like it."""
    assert meant("bugdet", ["budget", "evict"]) == "; did you mean 'budget'?"
    assert meant("zzz", ["budget", "evict"]) == ""
    assert meant("bgdt", ["budget"], cutoff=0.9) == ""


def test_only_folders_are_meant(tmp_path: Path) -> None:
    """A folder beside it that is spelt like it is named, and no file; none without a folder."""
    (tmp_path / "modles.txt").touch()
    assert meant_folder(tmp_path / "modles") == ""
    (tmp_path / "models").mkdir()
    assert meant_folder(tmp_path / "modles") == f"; did you mean '{tmp_path / 'models'}'?"
    assert meant_folder(tmp_path / "nowhere" / "modles") == ""


def test_what_is_wrong_with_a_folder(tmp_path: Path) -> None:
    """Of a folder nothing; a file is told as one, and for a missing folder the one meant."""
    (tmp_path / "models").mkdir()
    (tmp_path / "file").touch()
    assert no_folder(tmp_path / "models") == ""
    assert no_folder(tmp_path / "file") == "is a file, not a folder"
    told = f"does not exist; did you mean '{tmp_path / 'models'}'?"
    assert no_folder(tmp_path / "modles") == told
