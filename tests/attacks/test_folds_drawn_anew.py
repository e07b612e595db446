"""Attack A: other folds by another list of sites, until differences of sums are single people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attacks.coordinator import Attacker, people, study
from unpooled.maths.linear_algebra import unpack
from unpooled.maths.streams import stream
from unpooled.protocol.messages import Ask, Refusal, Statistics, Together
from unpooled.protocol.records import Parameters
from unpooled.site.folds import folds

TABLE = people(200, numbers=2)
FOLDS = np.array([-1, 0, 1, 2])


def attacker(root: Path) -> Attacker:
    return Attacker(root, TABLE, study(TABLE, {"name": "aipw"}))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_study_is_adopted_once(tmp_path: Path, restarted: bool) -> None:
    site = attacker(tmp_path)
    adopt = site.adopted()
    if restarted:
        site.restart()
    for others in (("dummy", "site"), ("dummy", "second", "site")):
        reply = site.ask(replace(adopt, sites=others).to_site(0))
        assert isinstance(reply, Refusal)
    assert isinstance(
        site.statistics("outcome", fixed={"without": FOLDS}), Refusal if restarted else Statistics
    )


def test_the_same_question_again_has_the_recorded_answer(tmp_path: Path) -> None:
    site = attacker(tmp_path)
    adopt = site.adopted()
    first = site.statistics("outcome", fixed={"without": FOLDS})
    site.restart()
    site.ask(adopt.to_site(0))
    again = site.statistics("outcome", fixed={"without": FOLDS})
    np.testing.assert_array_equal(first.summed["gram"], again.summed["gram"])


def test_only_the_site_knows_its_folds(tmp_path: Path) -> None:
    site = attacker(tmp_path)
    site.adopted()
    reply = site.statistics("outcome", fixed={"without": FOLDS})
    count = unpack(reply.summed["gram"])[:, :, 0, 0]
    score = reply.summed["score"][..., 0]
    treated = TABLE["w"].to_numpy(float)
    y = (TABLE["y"] - TABLE["y"].mean()).to_numpy() / TABLE["y"].std(ddof=0)
    guesses = [folds(treated, 3, stream(0, "folds", index)) for index in range(50)]
    for fold in guesses:
        kept = [(fold != f) & (treated == arm) for f in range(3) for arm in (0, 1)]
        expected = np.array([y[one].sum() for one in kept]).reshape(3, 2)
        assert not np.allclose(score[1:], expected, atol=1e-6)
    assert np.all(count[0] > count[1])


def test_no_adoption_hides_among_other_questions(tmp_path: Path) -> None:
    site = attacker(tmp_path)
    adopt = site.adopted()
    asked = Ask("outcome", Parameters(fixed={"without": FOLDS}))
    with pytest.raises(TypeError):
        Together((adopt, asked))  # type: ignore[arg-type]
