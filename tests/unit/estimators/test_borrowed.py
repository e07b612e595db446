"""The borrowed shares at an estimator's face."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.estimators.test_face import _result

from unpooled.errors import StudyError
from unpooled.estimators import CausalRFF


def _model(diagnostics: dict) -> CausalRFF:
    model = CausalRFF()
    model.result_ = replace(_result(), diagnostics=diagnostics)
    return model


def test_shares_have_the_sites_names_and_a_figure(tmp_path: Path) -> None:
    between_sites = {"chosen": "observed", "observed": {"borrowed": np.array([[0.6, 0.4], [0.1, 0.9]])}}
    model = _model(between_sites)
    assert model.borrowed().loc["n", "s"] == 0.4
    assert model.plot_borrowed(tmp_path / "borrowed.png").exists()


def test_a_model_that_tells_no_shares_says_which_do() -> None:
    with pytest.raises(StudyError, match="the model chosen is 'gaussian'"):
        _model({"chosen": "gaussian", "gaussian": {}}).borrowed()
