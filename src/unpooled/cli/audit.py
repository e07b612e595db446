"""`unpooled audit`: did a study ask its sites exactly its own questions?"""

from __future__ import annotations

import json as jsonlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Debug, Json

if TYPE_CHECKING:
    from unpooled.coordinator.audit import Audit
    from unpooled.coordinator.audit_ledger import SiteAudit, SiteLedger


def audit(
    results: Annotated[Path, typer.Argument(help="The results folder of a finished study.")],
    ledger: Annotated[
        list[Path] | None, typer.Argument(help="Folders of sites, or their ledger.jsonl.", show_default=False)
    ] = None,
    site: Annotated[
        list[str] | None,
        typer.Option(help="The name of a ledger's site, if no site.toml is beside it; once for each ledger."),
    ] = None,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Replay a study from its stored replies, and compare it with what reached its sites."""
    with reporting_errors(as_json=json, debug=debug):
        from unpooled.coordinator.audit import audit as audited
        from unpooled.report.results import CHECKPOINT, JOURNAL, RESULT

        names = _names(ledger or [], site or [])
        ledgers = [opened(path, name) for path, name in zip(ledger or [], names, strict=True)]
        found = audited(results, ledgers, checkpoint=CHECKPOINT, journal=JOURNAL, result=RESULT)
        if json:
            typer.echo(jsonlib.dumps(_as_json(found)))
        else:
            _tell(found)


def _names(ledgers: list[Path], sites: list[str]) -> list[str | None]:
    from unpooled.errors import StudyError

    if not sites:
        return [None] * len(ledgers)
    if len(sites) == len(ledgers):
        return list(sites)
    raise StudyError(
        "--site is given once for each ledger, or not at all",
        found=f"{len(sites)} names for {len(ledgers)} ledgers",
        remedy="give the names in the order of the ledgers",
    )


def opened(path: Path, name: str | None) -> SiteLedger:
    """The verified ledger of a site's folder."""
    from unpooled.coordinator.audit_ledger import LedgerLine, SiteLedger
    from unpooled.site.folder import LEDGER, SiteFolder
    from unpooled.site.ledger import verified_entries
    from unpooled.site.ledger_files import read_reply

    file = path / LEDGER if path.is_dir() else path
    site = SiteFolder.read(file.parent).name if name is None else name
    found = verified_entries(file)
    lines = tuple(
        LedgerLine(one.number, one.study, one.question, one.asked, one.digest, one.hash, one.refused)
        for one in found
    )
    digests = {one.number: one.digest for one in found}
    return SiteLedger(site, lines, partial(_reply, read_reply, file, digests))


def _reply(read: Any, file: Path, digests: dict[int, str], number: int) -> bytes:
    return read(file, number, digests[number])


def _tell(found: Audit) -> None:
    from rich.console import Console

    from unpooled.cli.review import plain

    console = Console(markup=False, emoji=False)
    for line in sentences(found):
        console.print(plain(line), highlight=False)


def sentences(found: Audit) -> list[str]:
    """What was checked, and what was not."""
    study, sites = found.study, ", ".join(found.sites)
    told = [
        f"Study '{study.name}'",
        f"hash {found.asked}",
        f"{found.rounds} rounds with {sites}: every stored question is the one that the study asks, and the "
        "stored replies give the stored results.",
    ]
    if found.starts > 1:
        told.append(
            f"The study started {found.starts} times, because it lost a site; all starts were checked."
        )
    told += [_site(one) for one in found.ledgers]
    without = [name for name in found.sites if name not in {one.site for one in found.ledgers}]
    if found.sums:
        told.append("The stored sums are those of the replies that the sites keep.")
    else:
        told.append(
            f"Not checked: what reached {', '.join(without)}, whose ledger was not given; and whether the "
            "stored sums are those of the sites' replies, which needs the folders of all sites."
        )
    return told


def _site(one: SiteAudit) -> str:
    extra = f", {one.repeated} of them asked again" if one.repeated else ""
    refused = f" Refused: line {', '.join(map(str, one.refused))}." if one.refused else ""
    heads = (
        f" Its head agrees with the journal {one.heads} times."
        if one.heads
        else " The journal has no head of it."
    )
    return (
        f"{one.site}: the ledger is intact, and its {one.lines} lines of this study{extra} hold exactly "
        f"these questions and this site's replies.{refused}{heads}"
    )


def _as_json(found: Audit) -> dict[str, Any]:
    return {
        "study": found.study.name,
        "hash": found.asked,
        "rounds": found.rounds,
        "sites": list(found.sites),
        "starts": found.starts,
        "sums": found.sums,
        "ledgers": [vars(one) for one in found.ledgers],
    }
