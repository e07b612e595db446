"""Options that several commands share, worded once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study file, such as study.toml.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else; errors too.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; the answer in one line.")]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on with the study that stopped in this folder; study, seed and tables must be unchanged.",
    ),
]
Debug = Annotated[
    int,
    typer.Option(
        "--debug",
        count=True,
        metavar="",
        help="Show where an unexpected error arose. Twice: also its message, which may quote a value.",
    ),
]
Coordinator = Annotated[
    Path, typer.Option("--coordinator", help="The coordinator's folder, from `coordinator create`.")
]
Patience = Annotated[
    float,
    typer.Option("--patience", min=1.0, help="Seconds that a site may take for one answer, or to come back."),
]
SiteFolderOption = Annotated[Path, typer.Option("--folder", help="The site's own folder, from `site join`.")]
