"""A study into a results folder: shared by `run` and `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unpooled.cli.progress import Watching

if TYPE_CHECKING:
    from unpooled.estimators import Estimator
    from unpooled.protocol.engine import RemoteSites
    from unpooled.study import Study


def conduct(
    study: Study, folder: Path, *, resume: bool, show: bool, sites: RemoteSites | None = None
) -> Estimator:
    """Fit, with a checkpoint after every round, and write the results."""
    from unpooled.coordinator.run import ROUNDS_BEFORE_FITTING
    from unpooled.estimators import of_study
    from unpooled.methods.diagnostics.rounds import MOST_ROUNDS
    from unpooled.methods.method import find, settings_of
    from unpooled.report.results import CHECKPOINT, JOURNAL, write_results

    model = of_study(study)
    method = find(study.method.name)
    rounds = method.most_rounds(settings_of(method, study.method.settings))
    bound = ROUNDS_BEFORE_FITTING + max(rounds, MOST_ROUNDS if study.diagnostics else 0)
    checkpoint, journal = folder / CHECKPOINT, folder / JOURNAL
    with Watching(most_rounds=bound, show=show) as watching:
        try:
            model.fit(study, sites, watch=watching, checkpoint=checkpoint, resume=resume, journal=journal)
        except Exception:
            if not (watching.fitting or resume):  # nothing to go on with: leave the folder free again
                checkpoint.unlink(missing_ok=True)
                journal.unlink(missing_ok=True)
            raise
    write_results(model, folder)
    return model
