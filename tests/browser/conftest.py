"""One Chromium and one JupyterLab for all tests of this folder."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from browser.chromium import CHROMIUM, FLAGS, Lab, jupyter, patient, with_own_fonts


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with each failure what the open pages show."""
    report = yield
    browser = item.funcargs.get("browser")
    # pytest-timeout's failure may have come in the middle of Playwright's own work
    if report.failed and browser and not call.excinfo.errisinstance(pytest.fail.Exception):
        from playwright.sync_api import Error

        for page in [page for context in browser.contexts for page in context.pages]:
            try:
                shown = page.inner_text("body", timeout=5_000)
            except Error as error:
                shown = str(error)
            report.sections.append((f"shown at {page.url}", shown))
    return report


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    environ = with_own_fonts(tmp_path_factory.mktemp("fonts"))
    with sync_playwright() as playwright:
        launch = playwright.chromium.launch
        browser = launch(executable_path=CHROMIUM, args=list(FLAGS), env=environ)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def context(browser: Any) -> Iterator[Any]:
    """For all pages of JupyterLab, whose scripts are then fetched and compiled only once."""
    with patient(browser) as context:
        yield context


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with jupyter(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture
def outside() -> list[str]:
    """What the page wanted from other hosts, and what it complained of."""
    return []
