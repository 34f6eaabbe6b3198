"""One Chromium and one JupyterLab for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from browser.chromium import CHROMIUM, FLAGS, Lab, jupyter


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def context(browser: Any) -> Iterator[Any]:
    """For all pages of JupyterLab, whose scripts are then fetched and compiled only once."""
    with browser.new_context() as context:
        yield context


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with jupyter(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture
def outside() -> list[str]:
    """What the page wanted from other hosts, and what it complained of."""
    return []
