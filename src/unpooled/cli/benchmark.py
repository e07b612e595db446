"""`unpooled benchmark`: reproduce the papers' tables and compare with other packages."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Debug, Quiet

if TYPE_CHECKING:
    from pandas import DataFrame

    from unpooled.benchmark.runner import Cell
    from unpooled.benchmark.tables import BenchmarkTable

app = typer.Typer(
    help="Reproduce the papers' tables and compare errors and cost with other packages.",
    no_args_is_help=True,
)
Store = Annotated[Path, typer.Option("--store", help="The folder in which finished cells are stored.")]
Files = Annotated[Path | None, typer.Option("--ihdp", help="The folder with the IHDP files.")]
STORE = Path("benchmark-results")


@app.command("list")
def list_(debug: Debug = 0) -> None:
    """List the tables and contenders, and which contenders are not installed."""
    with reporting_errors(debug=debug):
        from unpooled.benchmark.contenders import CONTENDERS
        from unpooled.benchmark.tables import TABLES

        typer.echo("Tables")
        for table in TABLES.values():
            files = " (needs the IHDP files: --ihdp)" if table.needs_files else ""
            typer.echo(f"  {table.name:<20} {table.about}; sites {_listed(table.sites)}{files}")
        typer.echo("Contenders")
        for contender in CONTENDERS.values():
            missing = contender.missing()
            absent = f"; not available: {missing}" if missing else ""
            typer.echo(f"  {contender.name:<19} {_listed(contender.arrangements)}{absent}")


@app.command()
def run(
    table: Annotated[str, typer.Argument(help="Such as fedci-data1; see `unpooled benchmark list`.")],
    replicates: Annotated[
        int | None, typer.Option(help="Number of replicates; by default the table's.")
    ] = None,
    replicate: Annotated[
        list[int] | None,
        typer.Option(
            "--replicate", help="Number of a replicate, instead of the first ones; may be repeated."
        ),
    ] = None,
    sites: Annotated[
        list[int] | None, typer.Option(help="Number of sites; may be given several times.")
    ] = None,
    methods: Annotated[list[str] | None, typer.Option(help="Contender; may be given several times.")] = None,
    arrangements: Annotated[
        list[str] | None, typer.Option(help="federated, local, bagged or combined; by default all.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Take minutes: two replicates, the most sites, fast contenders.")
    ] = False,
    store: Store = STORE,
    ihdp: Files = None,
    quiet: Quiet = False,
    debug: Debug = 0,
) -> None:
    """Run the unfinished cells of a table, then show the table."""
    with reporting_errors(debug=debug, resume=f"unpooled benchmark run {table} --store {quote(str(store))}"):
        from unpooled.benchmark import tables
        from unpooled.benchmark.runner import cells

        chosen = tables.find(table)
        counts = sites or ([max(chosen.sites)] if quick else list(chosen.sites))
        names = methods or list((chosen.method, *chosen.quick) if quick else chosen.contenders)
        todo = cells(
            contenders=names,
            sites=counts,
            replicates=replicate or replicates or (2 if quick else chosen.replicates),
            arrangements=_known(
                arrangements or list(tables.QUICK_ARRANGEMENTS if quick else chosen.arrangements)
            ),
        )
        _warn_unavailable(names)
        _run(chosen, todo, store, ihdp, show=not quiet)
        _show(store, chosen, None, "data-sets" if chosen.data_sets else "errors")


@app.command()
def compare(
    table: Annotated[str, typer.Argument(help="Such as fedci-data1.")],
    store: Store = STORE,
    paper: Annotated[
        Path | None, typer.Option(help="A table of published numbers to show beside ours.")
    ] = None,
    view: Annotated[
        str,
        typer.Option(help="errors, intervals, cost, overview, or data-sets: ranks and ratios to the best."),
    ] = "errors",
    every: Annotated[
        bool,
        typer.Option("--every-replicate", help="Include replicates that some contenders have not finished."),
    ] = False,
    methods: Annotated[
        list[str] | None, typer.Option(help="Contender; may be given several times. By default all.")
    ] = None,
    debug: Debug = 0,
) -> None:
    """Show the finished cells of a table: mean ± s.e. (median) over replicates finished by all contenders."""
    with reporting_errors(debug=debug):
        from unpooled.benchmark import tables

        _show(store, tables.find(table), paper, view, every=every, methods=methods)


@app.command()
def figures(
    table: Annotated[str, typer.Argument(help="Such as fedci-data1.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for the figures.")],
    store: Store = STORE,
    debug: Debug = 0,
) -> None:
    """Draw the figures of a table, each with its data as CSV."""
    with reporting_errors(debug=debug):
        from unpooled.benchmark import tables
        from unpooled.benchmark.comparison import write_figures

        chosen = tables.find(table)
        for path in write_figures(_cells(store, chosen.name), output, chosen):
            typer.echo(str(path))


@app.command()
def page(
    file: Annotated[Path, typer.Argument(help="The Markdown page, such as docs/benchmarks.md.")],
    summary: Annotated[
        Path | None, typer.Option(help="The summary of cells; by default beside the page, ending in .json.")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", help="A folder with finished cells, to add to the summary first."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing, and fail if a table is not that of the summary.")
    ] = False,
    debug: Debug = 0,
) -> None:
    """Write the tables between the markers of a page from the summary of cells; prose is left alone."""
    with reporting_errors(debug=debug):
        from unpooled.benchmark import summary as summaries
        from unpooled.benchmark.page import rewritten
        from unpooled.errors import ResultsError

        beside = summary or file.with_suffix(".json")
        old = summaries.read(beside)
        known = old if store is None else old.updated(summaries.of_store(store))
        text = file.read_text(encoding="utf-8")
        new = rewritten(text, known)
        if check and (new != text or known != old):
            raise ResultsError(
                "the tables of a page must be those of its cells",
                found=f"other tables in {file}",
                remedy=f"unpooled benchmark page {file}, without --check",
            )
        if known != old:
            summaries.write(known, beside)
        if new != text:
            file.write_text(new, encoding="utf-8")


def _run(table: BenchmarkTable, todo: list[Cell], store: Path, folder: Path | None, *, show: bool) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from unpooled.benchmark.runner import CellStore
    from unpooled.benchmark.runner import run as run_cells

    cells = CellStore(store, table.name)
    left = [cell for cell in todo if not cells.has(**cell.key)]
    console = Console(stderr=True, quiet=not show)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(table.name, total=len(todo), completed=len(todo) - len(left))
        for row in run_cells(table, left, cells, folder):
            what = (
                f"{row['contender']} {row['arrangement']}, {row['sites']} sites, replicate {row['replicate']}"
            )
            if row.get("error"):
                console.print(f"{what}: {row['error']}", markup=False)
            progress.update(task, advance=1, description=what)


def _show(
    store: Path,
    table: BenchmarkTable,
    paper: Path | None,
    view: str = "errors",
    *,
    every: bool = False,
    methods: list[str] | None = None,
) -> None:
    from unpooled.benchmark import ranking
    from unpooled.benchmark.comparison import (
        VIEWS,
        in_common,
        markdown,
        summarise,
        verdict,
        with_paper,
    )
    from unpooled.errors import StudyError, nearest

    if view not in (*VIEWS, ranking.VIEW):
        raise StudyError(
            "the view must exist", found=f"'{view}'", remedy=nearest(view, (*VIEWS, ranking.VIEW))
        )
    cells = _cells(store, table.name, methods)
    if view == ranking.VIEW:
        names = [data_set.name for data_set in table.data_sets]
        typer.echo(ranking.ranking_table(cells) + "\n\n" + ranking.error_table(cells, names))
        return
    if not every and not in_common(cells).empty:
        cells = in_common(cells)
    summary = summarise(cells, VIEWS[view])
    if view in ("errors", "overview"):
        summary = with_paper(summary, paper, table.name)
    typer.echo(markdown(summary, VIEWS[view]))
    if view in ("errors", "overview"):
        typer.echo("\n" + verdict(summary, table.method))


def _cells(store: Path, table: str, methods: list[str] | None = None) -> DataFrame:
    from unpooled.benchmark.contenders import find
    from unpooled.benchmark.runner import CellStore
    from unpooled.errors import ResultsError

    cells = CellStore(store, table).cells
    if methods:
        cells = cells.loc[cells["contender"].isin([find(name).name for name in methods])]
    if cells.empty:
        raise ResultsError(
            "a comparison needs finished cells",
            found=f"none of {table} in {store}",
            remedy=f"unpooled benchmark run {table} --store {store}",
        )
    return cells


def _known(arrangements: list[str]) -> list[str]:
    from unpooled.benchmark.contenders import ARRANGEMENTS
    from unpooled.errors import StudyError, nearest

    for name in arrangements:
        if name not in ARRANGEMENTS:
            raise StudyError(
                "the arrangement must exist", found=f"'{name}'", remedy=nearest(name, ARRANGEMENTS)
            )
    return arrangements


def _warn_unavailable(names: list[str]) -> None:
    from unpooled.benchmark.contenders import find

    for name in names:
        missing = find(name).missing()
        if missing:
            typer.echo(f"{name} is not available: {missing}", err=True)


def _listed(values: tuple) -> str:
    return ", ".join(str(value) for value in values)
