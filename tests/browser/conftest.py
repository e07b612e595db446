"""A page in a real browser, and a record of what it does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.browser.chromium import Seen, launch, watch


# Of a module, not of the session: while it runs, nothing else in the process can use asyncio.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page that nothing outside can reach, nor it anything outside."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 800})
    yield context.new_page()
    context.close()


@pytest.fixture
def seen(page: Page) -> Seen:
    """What the page writes as an error, throws, and asks for."""
    return watch(page)
