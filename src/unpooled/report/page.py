"""The report as one self-contained HTML file, which needs no network and suits print and small screens."""

from __future__ import annotations

from base64 import b64encode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from unpooled.report.json_types import ReportContent
from unpooled.report.numbers import significant
from unpooled.report.policy import calibration_sentence, policy_forms, policy_notes
from unpooled.report.report_figures import MOST, ReportFigure
from unpooled.report.words import effect_forms

TEMPLATE = "report.html.jinja"


def page(content: ReportContent, figures: dict[str, ReportFigure]) -> str:
    """Render the content of report.json and the figures; every number carries its path in report.json."""
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

    helpers = {"figures": figures, "most": MOST, "n": number, "data_url": _data_url}
    helpers["forms"] = effect_forms(content)
    if (policy := content["policy"]) is not None:
        helpers |= {"policy_forms": policy_forms(policy), "policy_notes": policy_notes(policy)}
        helpers["policy_order"] = calibration_sentence(policy)
    return template.render(**content, **helpers)


def _at(content: object, path: str) -> float | None:
    for key in path.split("/"):
        if isinstance(content, list):
            content = content[int(key)]
        else:
            assert isinstance(content, dict)
            content = content[key]
    assert content is None or isinstance(content, int | float)
    return content


def _number(value: float | None, path: str, form: str) -> Markup:
    """The number rounded for reading, with its exact value and its path in report.json as attributes."""
    if value is None:
        return Markup('<span class="none" title="withheld or not available">–</span>')
    text = significant(value, int(form)) if form.isdigit() else format(value, form)
    text = text.replace("-", "−")
    return Markup('<data data-path="{}" value="{}">{}</data>').format(path, repr(value), text)


def _data_url(figure: ReportFigure) -> str:
    return "data:image/svg+xml;base64," + b64encode(figure.svg).decode("ascii")
