"""The borrowed shares at an estimator's face."""

from __future__ import annotations

import numpy as np
import pytest

from oracle import records
from unpooled import plot
from unpooled.disclosure.by_site import BySite
from unpooled.errors import StudyError
from unpooled.estimators import CausalRFF
from unpooled.study import Study


def _model(diagnostics: dict) -> CausalRFF:
    model = CausalRFF()
    study = Study(treatment="w", outcome="y", covariates=["a"])
    effects = np.arange(8.0).reshape(4, 2)
    model.result_ = records.model(study, effects, ("n", "s"), fit_diagnostics=diagnostics).result_
    return model


def test_shares_have_the_sites_names_and_a_figure() -> None:
    shares = BySite(np.array([[0.6, 0.4], [0.1, 0.9]]), axes=2)
    model = _model({"chosen": "observed", "observed": {"borrowed": shares}})
    assert model.borrowed().loc["n", "s"] == 0.4
    ax = plot.borrowed(model)
    assert [text.get_text() for text in ax.texts] == ["60%", "40%", "10%", "90%"]


def test_a_model_that_tells_no_shares_says_which_do() -> None:
    with pytest.raises(StudyError, match="the model chosen is 'gaussian'"):
        _model({"chosen": "gaussian", "gaussian": {}}).borrowed()
