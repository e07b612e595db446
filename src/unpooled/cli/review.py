"""The output of `unpooled site review`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from unpooled.diagnostics.review import Review
from unpooled.site.approval import Standing
from unpooled.site.fingerprint import fingerprint
from unpooled.study.subgroups import subgroup_words

SHORT = 12


def plain(text: object) -> str:
    """Text from another party, without characters that control the terminal.

    >>> plain("a study\\x1b[2J")
    'a study?[2J'
    """
    return "".join(character if character.isprintable() else "?" for character in str(text))


def show_review(found: Review, standing: Standing) -> None:
    columns = found.study.columns
    console = _console()
    asks = f"'{found.study.name}' estimates the effect of '{columns.treatment}' on '{columns.outcome}'."
    console.print(plain(asks), style="bold", highlight=False, soft_wrap=True)
    facts = _table("", "")
    facts.show_header = False
    for what, text in _facts(found, standing).items():
        facts.add_row(what, plain(text))
    console.print(facts)
    console.print(f"\nWhat would leave '{found.site}' (never a row)", style="bold", highlight=False)
    leaving = _table("message", "reveals")
    for kind, reveals in found.leaving.items():
        leaving.add_row(plain(kind), plain(reveals))
    console.print(leaving)
    _show_seen(console, found)
    console.print(f"\n{_what_follows(found)}", highlight=False, soft_wrap=True)
    _show_refusals(console, found)


def _show_seen(console: Console, found: Review) -> None:
    """What is not hidden by masks."""
    if found.study.privacy.aggregation == "plain":
        text = "The coordinator sees all of these numbers of this site alone, before it adds them up."
        console.print(f"\n{text}", highlight=False, soft_wrap=True)
        return
    text = (
        "With three or more sites, sums are masked: the coordinator sees only sums over all sites. Of this "
        "site alone it sees its description, and"
    )
    console.print(f"\n{text}", highlight=False, soft_wrap=True)
    if not found.seen_by_site:
        console.print("  nothing else", highlight=False)
    for stage, counts in found.seen_by_site.items():
        sizes = ", ".join(f"{name} ({count:,})" for name, count in counts.items())
        console.print(f"  {plain(stage)}: {plain(sizes)} numbers", highlight=False, soft_wrap=True)


def _what_follows(found: Review) -> str:
    """Whether rows could be worked out from all that leaves, by somebody determined to."""
    sent = f"About {found.numbers:,} numbers at most would leave, about {found.values:,} values in the table."
    if found.numbers <= found.values:
        return f"{sent} From fewer numbers than values, rows do not follow in general."
    people = -(-found.numbers * found.rows // found.values)
    return (
        f"{sent} From more numbers than values, a determined coordinator could work out rows: approve only "
        f"if it is trusted with them. There would be fewer from {people:,} people on."
    )


def _facts(found: Review, standing: Standing) -> dict[str, str]:
    study, columns = found.study, found.study.columns
    settings = ", ".join(f"{key} = {value}" for key, value in study.method.settings.items())
    facts = {
        "method": f"{study.method.name} ({settings})",
        "seed": str(study.seed),
        "rounds": f"at most {found.most_rounds:,}",
        "covariates": ", ".join(columns.covariates),
        "incomplete": ", ".join(columns.incomplete),
        "subgroups": "; ".join(subgroup_words(name, entry) for name, entry in study.subgroups.items()),
        "weight": columns.weight or "",
        "cluster": columns.cluster or "",
        "missing values": "" if columns.modelled or not columns.incomplete else columns.missing,
        "id": f"{', '.join(columns.identity)}, whose values do not leave the site"
        if columns.identity
        else "",
        "rows": f"{found.rows:,} at site '{found.site}'",
        "hash": study.hash,
        "decision": _decision(standing),
    }
    return {what: text for what, text in facts.items() if text}


def _decision(standing: Standing) -> str:
    if standing.decision is not None:
        return f"{_word(standing.decision.approved)} on {standing.decision.when}"
    if standing.earlier is not None:
        return (
            f"not reviewed yet; differs from the version approved on {standing.earlier.when}; "
            f"changed: {', '.join(standing.changed)}"
        )
    return "not reviewed yet"


def _word(approved: bool) -> str:
    return "approved" if approved else "refused"


def _show_refusals(console: Console, found: Review) -> None:
    limits = found.limits
    bounds = f"rows {limits.rows}, cell {limits.cell}, share {limits.share:.2g}"
    console.print(f"\nUnder this site's disclosure limits ({bounds})", style="bold", highlight=False)
    for plan, people in found.smallest_arms.items():
        text = f"  {plan}: answers from {people:,} people in the smaller arm on"
        console.print(plain(text), highlight=False, soft_wrap=True)
    for note in found.notes:
        console.print(f"  the study would run with {plain(note)}", highlight=False, soft_wrap=True)
    for refusal in found.refusals:
        text = f"  would refuse: {plain(refusal)}"
        console.print(text, style="yellow", highlight=False, soft_wrap=True)
    if not found.refusals:
        console.print("  no refusals, as far as this site can check on its own", highlight=False)
    console.print()


def show_sites(own: str, sites: Mapping[str, bytes] | None) -> None:
    """The fingerprints of all sites, and what to do with them."""
    if sites is None:
        return
    console = _console()
    console.print("Sites that may take part", style="bold", highlight=False)
    names = _table("site", "fingerprint")
    for name, identity in sites.items():
        whose = f"{name} (this site)" if name == own else name
        names.add_row(plain(whose), fingerprint(identity))
    console.print(names)
    console.print(
        "\nTelephone the custodian of every other site, at a number that you have from elsewhere, and "
        "compare these words. Somebody who can put another identity into the list could see this site's "
        "sums.\n",
        highlight=False,
        soft_wrap=True,
    )


def show_decision(found: Review, approved: bool) -> None:
    decision = f"{_word(approved)}: '{found.study.name}' ({found.study.hash[:SHORT]}) at site '{found.site}'"
    _console().print(plain(decision), style="bold", highlight=False, soft_wrap=True)


def review_as_json(found: Review, standing: Standing, sites: Mapping[str, bytes] | None) -> dict[str, object]:
    decision = standing.decision
    return {
        "site": found.site,
        "study": found.study.model_dump(mode="json", exclude={"sites"}),
        "hash": found.study.hash,
        "most_rounds": found.most_rounds,
        "rows": found.rows,
        "limits": asdict(found.limits),
        "leaving": [{"kind": kind, "reveals": reveals} for kind, reveals in found.leaving.items()],
        "aggregation": found.study.privacy.aggregation,
        "seen_by_site": found.seen_by_site,
        "refusals": found.refusals,
        "notes": list(found.notes),
        "smallest_arms": found.smallest_arms,
        "numbers": found.numbers,
        "values": found.values,
        "sites": {name: fingerprint(identity) for name, identity in (sites or {}).items()},
        "decision": None if decision is None else _word(decision.approved),
        "changed": list(standing.changed),
    }


def _console() -> Console:
    return Console(markup=False, emoji=False)  # a column may be named 'bmi [kg/m2]'


def _table(*headings: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading)
    return table
