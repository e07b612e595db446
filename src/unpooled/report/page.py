"""One self-contained HTML file: it asks nothing of the network, prints, and reads on a phone."""

from __future__ import annotations

from base64 import b64encode
from functools import reduce
from math import floor, log10
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from unpooled.report.pictures import MOST, Picture

TEMPLATE = "report.html.jinja"


def page(content: dict[str, Any], pictures: dict[str, Picture]) -> str:
    """From report.json's content and the figures; every number carries the place that it has there."""
    environment = Environment(
        loader=PackageLoader("unpooled.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template(TEMPLATE)

    def number(path: str, form: str = "3") -> Markup:
        return _number(_at(content, path), path, form)

    beside = {"pictures": pictures, "most": MOST, "n": number, "data_url": _data_url}
    return template.render(**content, **beside)


def _at(content: Any, path: str) -> Any:
    return reduce(
        lambda tree, key: tree[int(key) if isinstance(tree, list) else key], path.split("/"), content
    )


def _number(value: Any, path: str, form: str) -> Markup:
    """As people read it, with the exact value and its place for whoever checks."""
    if value is None:
        return Markup('<span class="none" title="withheld, or no number">–</span>')
    text = significant(value, int(form)) if form.isdigit() else format(value, form)
    text = text.replace("-", "−")
    return Markup('<data data-path="{}" value="{}">{}</data>').format(path, repr(value), text)


def significant(value: float, digits: int) -> str:
    """So many digits that mean something, and no exponent where people would not write one.

    >>> [significant(value, 3) for value in (2.0, 1476.2, -0.01234, 1.5e-9, 0.0)]
    ['2.00', '1,476', '-0.0123', '1.50e-09', '0']
    """
    if value == 0.0:
        return "0"
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(digits - 1 - floor(log10(abs(value))), 0)}f}"


def _data_url(picture: Picture) -> str:
    return "data:image/svg+xml;base64," + b64encode(picture.svg).decode("ascii")
