"""The browser is real, and the record of a page misses nothing that would fail a test."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page
from tests.browser.chromium import Seen

PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
OUTSIDE = "http://127.0.0.1:9/"
STYLE = """
  body { background: white; font-family: system-ui, sans-serif }
  @media (prefers-color-scheme: dark) { body { background: black } }
  @media (max-width: 400px) { h1 { display: none } }
"""


def write(folder: Path, body: str) -> str:
    file = folder / "page.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{body}", encoding="utf-8")
    return file.as_uri()


def test_a_page_that_keeps_to_itself_leaves_no_record(tmp_path: Path, page: Page, seen: Seen) -> None:
    page.goto(write(tmp_path, f"<h1>Effects</h1><img src='{PIXEL}'><script>console.log('fine')</script>"))
    assert page.locator("img").evaluate("image => image.naturalWidth") == 1
    assert seen == Seen(requests=[page.url])
    assert seen.outside == []


def test_errors_and_requests_are_recorded(tmp_path: Path, page: Page, seen: Seen) -> None:
    script = f"console.error('told'); new WebSocket('{OUTSIDE.replace('http', 'ws')}'); throw Error('thrown')"
    parts = f"<img src='{OUTSIDE}'><iframe src='{OUTSIDE}frame'></iframe><img src='beside.png'>"
    page.goto(write(tmp_path, f"{parts}<script>{script}</script>"), wait_until="networkidle")
    assert "told" in seen.console
    assert seen.exceptions == ["thrown"]
    beside = (tmp_path / "beside.png").as_uri()
    assert set(seen.outside) == {OUTSIDE, f"{OUTSIDE}frame", "ws://127.0.0.1:9/", beside}


def test_width_and_dark_mode_reach_the_page(tmp_path: Path, page: Page) -> None:
    page.goto(write(tmp_path, "<h1>Effects</h1>"))
    colour = "() => getComputedStyle(document.body).backgroundColor"
    assert page.locator("h1").is_visible()
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="dark")
    assert page.locator("h1").is_hidden()
    assert page.evaluate(colour) == "rgb(0, 0, 0)"


def test_text_has_its_glyphs(tmp_path: Path, page: Page) -> None:
    letters = ["A", "τ", "≤", "✓", "\U000f0000"]  # of the last there is none, so a box is drawn
    page.goto(write(tmp_path, "".join(f"<p><span>{letter}</span></p>" for letter in letters)))
    drawn = {span.screenshot() for span in page.locator("span").all()}
    assert len(drawn) == len(letters)
