"""Progress in a notebook's cell."""

import pytest

from workbench.views.progress import Progress


def test_progress_is_quiet_without_a_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    """Outside a notebook no progress is shown."""
    times = iter([0.0, 10.0])
    with Progress(lambda: next(times)) as progress:
        progress.show(0.5)
    assert capsys.readouterr().out == ""
