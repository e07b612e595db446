"""Subgroups at a site: in batches as in memory, by fold where sums are, and only those of the study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled.coordinator.agreement import reach_agreement
from unpooled.coordinator.rounds import run
from unpooled.coordinator.run import adoption
from unpooled.data import batches as module
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import ApprovalError
from unpooled.methods.method import with_settings
from unpooled.protocol.messages import Adopt, Adopted
from unpooled.protocol.rows import Rows
from unpooled.site.answer import answer
from unpooled.site.approval import permit
from unpooled.site.site import Site
from unpooled.site.spool import Spool, batches
from unpooled.study import Study

SUBGROUPS = {"age": [0, 50, 65], "place": "levels", "older": "age >= 60 and place != 'n'"}
ROWS = 1003


def table(rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age, place = rng.uniform(30, 90, rows).round(), rng.choice(["n", "s", "w"], rows)
    w = rng.integers(0, 2, rows)
    return pd.DataFrame({"age": age, "place": place, "w": w, "y": age / 10 + w + rng.normal(size=rows)})


def study(name: str = "aipw", **options: Any) -> Study:
    values = {"treatment": "w", "outcome": "y", "covariates": ["age", "place"], "subgroups": SUBGROUPS}
    settings = {"structure": "projection"} if name == "fedci" else {}
    return with_settings(Study(**{**values, **options}), name, settings)


def adopted(asked: Study, tables: dict[str, Any], limits: Limits = NONE) -> tuple[Site, Adopted, Adopt]:
    """The first site, its reply to the question that makes it adopt the study, and that question."""
    sites = open_sites(asked, tables, limits)
    agreement = run(reach_agreement(asked), InProcess(sites))
    question = adoption(asked, agreement.schema, agreement.scaling)
    site = next(iter(sites.values()))
    reply = answer(site, question.to_site(0))
    assert isinstance(reply, Adopted)
    return site, reply, question


def people(rows: Rows | Spool) -> np.ndarray:
    """Who belongs to each group, in the order of the rows."""
    parts = [rows] if isinstance(rows, Rows) else list(batches(rows))
    return np.hstack([np.asarray(one.groups)[:, np.asarray(one.present) > 0.0] for one in parts])


def test_a_table_in_batches_has_the_groups_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE", 900)
    monkeypatch.setattr(module, "BATCH", 334)
    table().to_parquet(tmp_path / "large.parquet", row_group_size=180)
    small = table(100)
    whole, _, _ = adopted(study(), {"large": table(), "small": small})
    parts, _, _ = adopted(study(), {"large": tmp_path / "large.parquet", "small": small})
    assert whole.adopted is not None and parts.adopted is not None
    assert isinstance(parts.adopted.rows, Spool)
    found = people(whole.adopted.rows)
    np.testing.assert_array_equal(people(parts.adopted.rows), found)
    frame = table()
    expected = [
        "0 <= age < 50",
        "50 <= age < 65",
        "age >= 65",
        "place == 'n'",
        "place == 's'",
        "place == 'w'",
        "age >= 60 and place != 'n'",
    ]
    np.testing.assert_array_equal(found, [frame.eval(one) for one in expected])


def test_groups_must_be_large_in_every_fold_if_parameters_may_differ_by_fold() -> None:
    """Of 18 people, nine are in each arm, so that some of its three folds have fewer than five."""
    tables = {"here": table(300), "there": table(200)}
    old = tables["here"].index[:18]
    tables["here"].loc[old, "age"] = 99.0
    tables["here"].loc[old, "w"] = np.arange(18) % 2
    rules = {"old": "age == 99"}
    answers = {}
    for name in ("aipw", "fedci"):
        site, reply, _ = adopted(study(name, subgroups=rules), tables, Limits())
        assert site.adopted is not None
        assert people(site.adopted.rows).any() == (reply.without_subgroups == ())
        answers[name] = reply.without_subgroups
    assert answers == {"aipw": ("old",), "fedci": ()}


def test_a_site_adopts_only_the_subgroups_of_the_study_that_was_approved() -> None:
    asked = study()
    _, _, question = adopted(asked, {"here": table(300), "there": table(200)})
    permit(asked, question)
    changed = [{}, {**SUBGROUPS, "age": [0, 50, 66]}, {**SUBGROUPS, "one more": "age == 71"}]
    for subgroups in changed:
        other = asked.with_changes(subgroups=subgroups)
        with pytest.raises(ApprovalError) as error:
            permit(other, question)
        assert "other subgroups to adopt" in error.value.found
