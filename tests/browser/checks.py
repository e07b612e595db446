"""What must hold of a report as a browser shows it: each check tells what is wrong."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from functools import reduce
from itertools import pairwise
from typing import Any

from playwright.sync_api import Page

WIDTHS = (1280, 390)
CONTRAST = 4.5
"""Between text and its background, for text of any size (WCAG 2.2, level AA)."""

IMAGES = """() => [...document.images].flatMap((image, place) => [
  ...(image.alt.trim() ? [] : [`image ${place} has no text`]),
  ...(image.complete && image.naturalWidth > 0 ? [] : [`image ${place} is not drawn`]),
])"""
LEVELS = "() => [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(each => Number(each.tagName[1]))"
LINKS = """() => [...document.querySelectorAll('a[href]')].map(each => each.getAttribute('href')).filter(
  href => !(href.startsWith('#') && document.getElementById(href.slice(1))))"""
NUMBERS = "() => [...document.querySelectorAll('data')].map(e => [e.dataset.path, e.value, e.textContent])"
OPEN = "() => document.querySelectorAll('details').forEach(each => { each.open = true })"
# An element's own text against the nearest background that is not transparent.
CONTRASTS = """() => {
  const parts = colour => colour.match(/[0-9.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = parts(colour).map(v => v / 255).map(
      v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = each => {
    for (; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (parts(colour)[3] !== 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const written = each => [...each.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  return [...document.body.querySelectorAll('*')].filter(written).map(each => {
    const [one, other] = [light(getComputedStyle(each).color), light(behind(each))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    return [each.textContent.trim().slice(0, 40), ratio, other];
  });
}"""
FOCUSED = "() => [document.activeElement.tagName, document.activeElement.textContent.trim()]"


def images(page: Page) -> list[str]:
    """Every image is drawn, and told to whoever cannot see it."""
    return page.evaluate(IMAGES)


def headings(page: Page) -> list[str]:
    """One title, and no level is left out on the way down."""
    levels = page.evaluate(LEVELS)
    found = [] if levels.count(1) == 1 else [f"{levels.count(1)} titles"]
    return found + [f"from h{a} to h{b}" for a, b in pairwise(levels) if b > a + 1]


def links(page: Page) -> list[str]:
    """Every link leads to a place on this page."""
    return [f"nowhere: {href}" for href in page.evaluate(LINKS)]


def numbers(page: Page, report: dict[str, Any]) -> list[str]:
    """Every number is that of report.json, and what is written is that number rounded."""
    shown = page.evaluate(NUMBERS)
    found = [] if shown else ["no number"]
    for path, value, text in shown:
        try:
            true = reduce(
                lambda tree, key: tree[int(key) if isinstance(tree, list) else key], path.split("/"), report
            )
        except (KeyError, IndexError, ValueError):
            found.append(f"{path} is not in report.json")
            continue
        if float(value) != true:
            found.append(f"{path} is {true}, not {value}")
        if not rounded(text, true):
            found.append(f"{path} is {true}, not {text}")
    return found


def rounded(text: str, value: float) -> bool:
    """Whether a text is this number, to as many digits as it has."""
    plain = text.replace("−", "-").replace(",", "")
    try:
        read = Decimal(plain.removesuffix("%"))
    except InvalidOperation:
        return False
    exponent = read.as_tuple().exponent
    assert isinstance(exponent, int)
    true = Decimal(repr(value)) * (100 if plain.endswith("%") else 1)
    return abs(read - true) <= Decimal("0.5000001") * Decimal(10) ** exponent


def widths(page: Page) -> list[str]:
    """Nothing reaches beyond the screen, be it wide or narrow, with every table open."""
    page.evaluate(OPEN)
    found = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        needed = page.evaluate("() => document.documentElement.scrollWidth")
        found += [f"{needed} wide on a screen of {width}"] if needed > width else []
    return found


def colours(page: Page, scheme: Any) -> list[str]:
    """Every text can be read on what is behind it, and the page is as light or dark as was asked for."""
    page.evaluate(OPEN)
    page.emulate_media(color_scheme=scheme)
    shown = page.evaluate(CONTRASTS)
    found = [f"{ratio:.1f}: {text}" for text, ratio, _ in shown if ratio < CONTRAST]
    other = [text for text, _, behind in shown if (behind < 0.1) != (scheme == "dark")]
    return found + [f"not {scheme}: {text}" for text in other]


def keyboard(page: Page) -> list[str]:
    """The first key leads to the link past the links, and every table can be opened."""
    page.keyboard.press("Tab")
    first, reached = page.evaluate(FOCUSED), []
    while (focused := page.evaluate(FOCUSED))[0] != "BODY" and len(reached) < 500:
        reached.append(focused)
        page.keyboard.press("Tab")
    tables = page.locator("summary").all_inner_texts()
    found = [] if first == ["A", "Skip to the result"] else [f"first comes {first}"]
    return found + [f"out of reach: {text}" for text in tables if ["SUMMARY", text.strip()] not in reached]
