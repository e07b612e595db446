"""`unpooled site`: the commands of a site's custodian."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.join import join, start
from unpooled.cli.options import Debug, Json, SiteFolderOption, StudyFile

app = typer.Typer(
    help="For the custodian of a site: review studies and see what left the site.", no_args_is_help=True
)
for command in (join, start):
    app.command()(command)
HERE = Path(".")


@app.command()
def review(
    study: StudyFile,
    folder: SiteFolderOption = HERE,
    approve: Annotated[
        bool | None, typer.Option("--approve/--refuse", help="Decide without a prompt.")
    ] = None,
    sites: Annotated[
        Path | None,
        typer.Option(
            help="The list of all sites from the coordinator; by default sites.json beside the study file."
        ),
    ] = None,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Show what a study asks of this site and what would leave it, then approve or refuse the study."""
    with reporting_errors(as_json=json, debug=debug):
        from unpooled.cli.review import review_as_json, show_decision, show_review, show_sites
        from unpooled.diagnostics.review import review as reviewed
        from unpooled.methods.method import with_explicit_settings
        from unpooled.site.approval import Approvals
        from unpooled.site.folder import SiteFolder
        from unpooled.site.known_sites import known_to, list_beside
        from unpooled.site.site import open_site
        from unpooled.study import read_study

        own = SiteFolder.read(folder)
        asked = with_explicit_settings(read_study(study))
        listed = list_beside(study, sites)
        approvals = Approvals(own.approvals)
        found = reviewed(asked, open_site(own.name, own.source, asked, own.limits))
        if not json:
            show_review(found, approvals.standing(asked))
            show_sites(own.name, listed)
            approve = typer.confirm("Approve?", default=None) if approve is None else approve
        if approve:
            known_to(own, asked, listed)
        if approve is not None:
            approvals.decide(asked, approved=approve, sites=listed)
        if json:
            typer.echo(jsonlib.dumps(review_as_json(found, approvals.standing(asked), listed)))
        else:
            show_decision(found, bool(approve))


@app.command()
def ledger(
    folder: SiteFolderOption = HERE,
    verify: Annotated[
        bool, typer.Option("--verify", help="Only verify that no line was altered, removed or added.")
    ] = False,
    show: Annotated[
        int | None, typer.Option("--show", metavar="LINE", help="Open the reply of this line.")
    ] = None,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Show what left this site, with the newest reply last."""
    with reporting_errors(as_json=json, debug=debug):
        from unpooled.cli.show_ledger import ledger_as_json, show_ledger, show_verified
        from unpooled.cli.show_reply import reply_as_json, show_reply
        from unpooled.site import ledger as kept
        from unpooled.site.folder import SiteFolder

        own = SiteFolder.read(folder)
        if show is not None:
            entry, content = kept.open_reply(own.ledger, show)
            if json:
                typer.echo(jsonlib.dumps(reply_as_json(own.name, entry, content)))
            else:
                show_reply(entry, content)
            return
        if verify:
            found = kept.verify(own.ledger)
            if json:
                typer.echo(jsonlib.dumps({"site": own.name, "verified": found._asdict()}))
            else:
                show_verified(found)
            return
        lines = kept.entries(own.ledger)
        if json:
            typer.echo(jsonlib.dumps(ledger_as_json(own.name, lines)))
        else:
            show_ledger(own.name, lines)
