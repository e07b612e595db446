"""Command-line options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study file, such as study.toml.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else, also for errors.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only the result, in one line, without progress.")
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue the interrupted study in this folder. Study, seed and tables must be unchanged.",
    ),
]
Debug = Annotated[
    int,
    typer.Option(
        "--debug",
        count=True,
        metavar="",
        help="Show where an unexpected error occurred. Given twice, also show its message, which may contain "
        "data.",
    ),
]
Coordinator = Annotated[
    Path, typer.Option("--coordinator", help="The coordinator's folder, made by `coordinator create`.")
]
Patience = Annotated[
    float,
    typer.Option("--patience", min=1.0, help="Seconds to wait for a site's reply, or for it to reconnect."),
]
SiteFolderOption = Annotated[
    Path, typer.Option("--folder", help="The site's own folder, made by `site join`.")
]
