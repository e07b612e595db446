"""Conditional and individual effects, computed at the site; they do not leave it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from unpooled.data import Table, encode, encode_covariates, encode_incomplete, read
from unpooled.errors import StudyError
from unpooled.maths.linear_algebra import one_blas_thread
from unpooled.models.calibration import Calibration, odds
from unpooled.protocol.records import Draws
from unpooled.protocol.rows import Rows, make_rows
from unpooled.site.site import Adoption, Site
from unpooled.site.standard_units import standardise, standardise_incomplete


@one_blas_thread()
def conditional_effects(site: Site, draws: Draws, people: Table) -> np.ndarray:
    """CATE draws [K, people], in standard units."""
    study, own = _ready(site)
    known = (*site.columns.covariates, *site.columns.incomplete)
    frame = read(people, site.columns, site=site.name, names=known)
    covariates = encode_covariates(frame, site.columns, study.schema, site=site.name)
    incomplete = encode_incomplete(frame, study.schema, site=site.name)
    nothing = np.zeros(len(covariates))
    asked = _people(study, own, covariates, nothing, nothing, incomplete)
    result = study.method.conditional_effects(study.settings, study.context, draws, own, asked)
    return result[:, : len(covariates)]


@one_blas_thread()
def individual_effects(
    site: Site, draws: Draws, people: Table | None, calibration: Calibration | None
) -> np.ndarray:
    """ITE draws [K, people] in standard units, for the site's own people or others with known outcomes.

    Deviations from the mean are stretched by the calibration of the arm whose outcome is missing.
    """
    rows, found = _individual_effects(site, draws, people)
    if calibration is None:
        return found
    mean = found.mean(axis=0)
    return mean + calibration.scale()[1 - _arms(rows)] * (found - mean)


@one_blas_thread()
def conformal_interval(
    site: Site, draws: Draws, people: Table | None, calibration: Calibration, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """Conformal intervals of individual effects in standard units."""
    rows, found = _individual_effects(site, draws, people)
    arms = _arms(rows)
    assert calibration.log_odds is not None
    chances = np.asarray(odds(jnp.asarray(calibration.log_odds), rows.covariates))[: len(arms)]
    reach = calibration.quantile(1 - arms, chances, alpha) * found.std(axis=0)
    return found.mean(axis=0) - reach, found.mean(axis=0) + reach


def _individual_effects(site: Site, draws: Draws, people: Table | None) -> tuple[Rows, np.ndarray]:
    """The people, and the draws of their effects as the method gives them."""
    (study, own), asked = _ready(site), None
    if people is not None:
        columns = site.columns.model_copy(update={"family": study.scaling.family})
        frame = read(people, columns, site=site.name)
        arrays = encode(frame, columns, study.schema, site=site.name)
        assert arrays.outcome is not None
        outcome = (arrays.outcome - study.scaling.outcome_mean) / study.scaling.outcome_sd
        asked = _people(study, own, arrays.covariates, arrays.treatment, outcome, arrays.incomplete)
    result = study.method.individual_effects(study.settings, study.context, draws, own, asked, study.seed)
    rows = own if asked is None else asked
    return rows, result[:, : len(_arms(rows))]


def _arms(rows: Rows) -> np.ndarray:
    """Everybody's arm, without the padding."""
    return np.asarray(rows.treatment)[np.asarray(rows.present) > 0.0].astype(int)


def _people(
    study: Adoption,
    own: Rows,
    covariates: np.ndarray,
    treatment: np.ndarray,
    outcome: np.ndarray,
    incomplete: np.ndarray,
) -> Rows:
    return make_rows(
        standardise(covariates, study.scaling),
        treatment,
        outcome,
        fold=np.zeros(len(treatment)),
        site=int(own.site),
        incomplete=standardise_incomplete(incomplete, study.scaling),
    )


def _ready(site: Site) -> tuple[Adoption, Rows]:
    """The study that the site has adopted, and its own rows."""
    if site.adopted is None:
        raise StudyError(
            "the site must have adopted the study",
            found="a site without a study",
            remedy="fit or attach the model",
        )
    if site.adopted.own_rows is None:
        raise StudyError(
            "effects of people are computed beside a table that is in memory",
            found=f"the table of site '{site.name}', which is read in batches",
            remedy="attach a sample of its rows as this site: model.attach({name: rows})",
        )
    return site.adopted, site.adopted.own_rows
