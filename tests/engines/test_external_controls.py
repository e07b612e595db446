"""External controls over pipes: a trial of treated people and two hospitals of controls, a process each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.stage import approve_together, study, tables, written
from unpooled.disclosure.limits import Limits
from unpooled.engines.pipes import SiteProcesses
from unpooled.errors import DataError
from unpooled.estimators import ESTIMATORS, Estimator
from unpooled.protocol.key_messages import KEY_EXCHANGE
from unpooled.site.folder import SiteFolder
from unpooled.site.ledger import entries
from unpooled.study import Study

pytestmark = pytest.mark.slow
METHODS: dict[str, dict[str, Any]] = {
    "causal_rff": {"name": "causal_rff", "draws": 20, "confounding": "observed", "frequencies": 0},
    "aipw": {"name": "aipw", "draws": 20, "site_terms": "none"},
}
TREATED = {"north": 1, "south": 0, "east": 0}
EXTERNAL = {name: table.assign(w=TREATED[name]) for name, table in tables().items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("sites")
    sources = written(root, EXTERNAL).items()
    made = {name: SiteFolder.create(root / name, name, source, rehearsal=True) for name, source in sources}
    return {name: own.folder for name, own in made.items()}


def fit(asked: Study, sites: object, **more: object) -> Estimator:
    model = ESTIMATORS[asked.method.name](seed=asked.seed, **asked.method.settings)
    return model.fit(asked, sites, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("aggregation", ["plain", "secure"])
def test_a_study_gives_the_numbers_of_one_process(
    folders: dict[str, Path], method: str, aggregation: str
) -> None:
    """With masks too, under which the coordinator sees only sums of the trial and the hospitals."""
    name = f"{method}, {aggregation}"
    asked = study(name, method=METHODS[method], privacy={"aggregation": aggregation})
    approve_together(folders.values(), asked)
    ledger = folders["north"] / "ledger.jsonl"
    before = len(entries(ledger)) if ledger.exists() else 0
    there = fit(asked, SiteProcesses(folders))
    here = fit(asked, EXTERNAL, limits=Limits())
    np.testing.assert_array_equal(there.ate_draws(), here.ate_draws())
    np.testing.assert_array_equal(there.result_.site_effects, here.result_.site_effects)
    assert there.result_.scaling.known.one_arm == {"north": "treated", "south": "control", "east": "control"}
    check = there.checks().set_index("name").loc["both arms at the same site"]
    assert not check["passed"] and "predicted from other sites" in check["words"]
    asked_of_north = {entry.question for entry in entries(ledger)[before:]}
    assert bool(asked_of_north & set(KEY_EXCHANGE)) == (aggregation == "secure")


def test_a_method_that_needs_both_arms_is_refused_before_anything_is_fitted(folders: dict[str, Path]) -> None:
    asked = study("offsets", method={"name": "aipw", "draws": 20})
    approve_together(folders.values(), asked)
    with pytest.raises(
        DataError, match="only treated people at 'north'; only controls at 'south' and 'east'"
    ):
        fit(asked, SiteProcesses(folders))
    last = entries(folders["north"] / "ledger.jsonl")[-1]
    assert last.question in ("describe", "summarise")
