"""What every method keeps, whatever it does inside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from jax import monitoring
from sklearn.base import clone

import unpooled
from contract.cases import CASES, ENGINES, MASKED, OF_COUNTS, SLOWEST, study_of, tables_of
from oracle.world import SIZES, frames
from unpooled.coordinator.rounds import Conduct, Round
from unpooled.coordinator.run import ROUNDS_BEFORE_FITTING, study_procedure
from unpooled.errors import DataError, ResultsError, StudyError, UnpooledError
from unpooled.estimators import ESTIMATORS, Estimator
from unpooled.methods.method import METHODS, find, settings_of, with_settings
from unpooled.protocol.codec import encode
from unpooled.protocol.messages import Question

pytestmark = pytest.mark.slow

EVERY = CASES | OF_COUNTS
PEOPLE = frames()["south"].drop(columns=["w", "y"]).head(4)


class Done:
    """A fit, and what was seen of it while it ran."""

    def __init__(self, case: str, seed: int = 1, **arguments: Any) -> None:
        self.case = case
        self.rounds: list[Round] = []
        self.tables = tables_of(case)
        self.model = estimator(case, seed).fit(
            study_of(case), self.tables, watch=self.rounds.append, **arguments
        )


def estimator(case: str, seed: int = 1) -> Estimator:
    method, settings = EVERY[case]
    return ESTIMATORS[method](seed=seed, **settings)


@pytest.fixture(scope="module", params=EVERY)
def case(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def done(case: str) -> Done:
    return Done(case)


# ------------------------------------------------------------------- the list itself


def test_sites_with_one_arm_are_used_or_refused_by_name(case: str) -> None:
    """Nobody in the south is a control, and nobody in the east is treated."""
    method, settings = EVERY[case]
    arms = {"south": 1, "east": 0}
    tables = {name: table.assign(w=arms.get(name, table["w"])) for name, table in tables_of(case).items()}
    if settings_of(find(method), settings).needs_both_arms:
        with pytest.raises(
            DataError, match=f"(?s)'{method}' needs .* only treated people at 'south'; only contr"
        ):
            estimator(case).fit(study_of(case), tables)
        return
    model = estimator(case).fit(study_of(case), tables)
    assert np.isfinite(model.summary()[["ate", "lower", "upper"]].to_numpy()).all()
    assert np.isnan(model.att("east")) and np.isfinite(model.att("south"))
    assert model.checks().iloc[0]["name"] == "both arms at the same site"
    assert model.checks().iloc[0]["passed"]


def test_every_method_is_under_contract_and_has_an_estimator() -> None:
    assert {method for method, _ in CASES.values()} == set(METHODS) == set(ESTIMATORS)


# ------------------------------------------------------------------------ estimators


def test_results_are_finite_and_shaped_by_draws_sites_and_people(done: Done, case: str) -> None:
    model, draws = done.model, EVERY[case][1]["draws"]
    assert model.result_.site_effects.shape == (draws, len(SIZES))
    assert model.ate_draws().shape == (draws,)
    assert model.effect_draws(PEOPLE, site="south").shape == (draws, 4)
    assert model.ite_draws("south").shape == (draws, SIZES["south"])
    assert model.ite("south", tables_of(case)["east"].head(3)).shape == (3,)
    assert model.ite("south", tables_of(case)["east"].head(1)).shape == (1,)
    for numbers in (
        model.result_.site_effects,
        model.effect_draws(PEOPLE, site="south"),
        model.ite_draws("south"),
    ):
        assert np.all(np.isfinite(numbers))
    summary = model.summary()
    assert list(summary.index) == [*SIZES, "all sites"]
    family = "count" if case in OF_COUNTS else "continuous"
    assert summary.pop("family").tolist() == [family] * len(summary)
    assert np.all(np.isfinite(summary.to_numpy(float)))


def test_intervals_hold_the_mean_and_widen_with_confidence(done: Done) -> None:
    lower, upper = done.model.ate_interval()
    narrow = done.model.ate_interval(alpha=0.5)
    assert lower < narrow[0] < done.model.ate() < narrow[1] < upper
    below, above = done.model.effect_interval(PEOPLE, site="south")
    assert np.all(below < above)
    below, above = done.model.ite_interval("south")
    assert np.all(below < above)


def test_conformal_intervals_need_held_out_people_and_surround_the_posteriors_mean(done: Done) -> None:
    calibration = done.model.result_.calibration
    if calibration is None or calibration.log_odds is None:
        with pytest.raises(StudyError, match="held-out people"):
            done.model.ite_interval("south", method="conformal")
        return
    below, above = done.model.ite_interval("south", alpha=0.2, method="conformal")
    mean = done.model.ite("south")
    assert np.all((below < mean) & (mean < above))
    assert np.any(np.isfinite(above))
    people = tables_of(done.case)["south"].head(3)
    np.testing.assert_allclose((below + above)[:3] / 2.0, mean[:3])
    assert len(done.model.ite_interval("south", people, method="conformal")[0]) == 3


def test_calibrated_intervals_of_conditional_effects_need_the_noise_of_the_arms(done: Done) -> None:
    if done.model.result_.noise_of_arms is None:
        with pytest.raises(StudyError, match="noise of both arms"):
            done.model.effect_interval(PEOPLE, site="south", method="calibrated")
        return
    plain = done.model.effect_interval(PEOPLE, site="south")
    found = done.model.effect_interval(PEOPLE, site="south", method="calibrated")
    if done.model.result_.noise_of_arms.check().passed:
        np.testing.assert_array_equal(found, plain)
    else:
        assert np.all(found[1] - found[0] > plain[1] - plain[0])
    with pytest.raises(StudyError, match="'exact'"):
        done.model.effect_interval(PEOPLE, site="south", method="exact")


def test_rounds_are_counted_and_cost_bytes_at_every_site(done: Done) -> None:
    cost = done.model.result_.cost
    assert cost.rounds == len(done.rounds) > 4
    assert [happened.number for happened in done.rounds] == list(range(1, len(done.rounds) + 1))
    for counts in (cost.bytes_down, cost.bytes_up):
        assert set(counts) == set(SIZES)
        assert all(count > 0 for count in counts.values())
    assert not any(happened.replayed for happened in done.rounds)


def test_rounds_stay_within_what_the_method_promised(done: Done) -> None:
    study = done.model.result_.study
    method = find(study.method.name)
    promised = method.most_rounds(settings_of(method, study.method.settings))
    assert len(done.rounds) <= ROUNDS_BEFORE_FITTING + promised


def test_the_same_seed_gives_the_same_numbers_and_compiles_nothing_anew(done: Done, case: str) -> None:
    compiled: list[str] = []

    def listen(event: str, _: float, **__: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    monitoring.register_event_duration_secs_listener(listen)
    try:
        again = Done(case).model
        assert not compiled
        jax.jit(lambda x: x + 1.25)(np.ones(3))  # the listener does listen
        assert compiled
    finally:
        monitoring.unregister_event_duration_listener(listen)
    np.testing.assert_array_equal(again.ate_draws(), done.model.ate_draws())
    np.testing.assert_array_equal(again.ite_draws("east"), done.model.ite_draws("east"))


def test_another_seed_gives_other_numbers_but_the_same_answer(done: Done, case: str) -> None:
    other = Done(case, seed=2).model
    assert not np.array_equal(other.ate_draws(), done.model.ate_draws())
    # Two means of 40 draws differ by 0.22 sd or so; a stochastic bound moves a little more.
    assert abs(other.ate() - done.model.ate()) < 1.5 * done.model.ate_draws().std()


def test_tables_are_never_changed(done: Done) -> None:
    for name, table in tables_of(done.case).items():
        pd.testing.assert_frame_equal(done.tables[name], table)


def test_a_saved_model_gives_the_same_numbers_beside_its_tables(done: Done, tmp_path: Path) -> None:
    model, tables = done.model, tables_of(done.case)
    loaded = unpooled.load(model.save(tmp_path / "model"))
    assert loaded.get_params() == model.get_params()
    # To rounding: sums over sites may run in another order when the stored array lies otherwise in memory.
    np.testing.assert_allclose(loaded.ate_draws(), model.ate_draws(), rtol=1e-12)
    pd.testing.assert_frame_equal(loaded.summary(), model.summary())
    with pytest.raises(StudyError, match="attach"):
        loaded.effect(PEOPLE, site="south")
    with pytest.raises(StudyError, match="south"):
        loaded.attach({"sout": tables["south"]})
    with pytest.raises(DataError, match="level"):
        loaded.attach({"south": tables["south"].assign(w=tables["south"]["w"] + 5)})
    with pytest.raises(StudyError, match="attach"):
        loaded.attach({"south": tables["south"]}).effect(PEOPLE, site="north")
    loaded.attach(tables)
    effects = [each.effect_draws(PEOPLE, site="south") for each in (loaded, model)]
    np.testing.assert_array_equal(*effects)
    np.testing.assert_array_equal(loaded.ite_draws("north"), model.ite_draws("north"))


def test_a_saved_model_holds_no_row(done: Done, tmp_path: Path) -> None:
    folder = done.model.save(tmp_path / "model")
    stored = b"".join(path.read_bytes() for path in folder.iterdir())
    for table in tables_of(done.case).values():
        for value in table[["a", "b", "c", "y"]].to_numpy().ravel():
            if value == round(value):
                continue  # small whole numbers, as counts are, are not only those of rows
            assert np.float64(value).tobytes() not in stored


def test_an_interrupted_fit_goes_on_to_the_same_numbers(done: Done, case: str, tmp_path: Path) -> None:
    class Interrupted(Exception):
        pass

    def stop(happened: Round) -> None:
        if happened.number == len(done.rounds) // 2:
            raise Interrupted

    record = tmp_path / "rounds"
    with pytest.raises(Interrupted):
        estimator(case).fit(study_of(case), tables_of(case), checkpoint=record, watch=stop)
    resumed = Done(case, checkpoint=record, resume=True)
    np.testing.assert_array_equal(resumed.model.ate_draws(), done.model.ate_draws())
    assert sum(happened.replayed for happened in resumed.rounds) == len(done.rounds) // 2
    with pytest.raises(ResultsError, match="round"):
        Done(case, seed=9, checkpoint=record, resume=True)
    tables = tables_of(case)
    changed = tables | {"south": tables["south"].assign(a=tables["south"]["a"] + 0.01)}
    with pytest.raises(ResultsError, match="another table at: south"):
        estimator(case).fit(study_of(case), changed, checkpoint=record, resume=True)


def test_the_journal_has_a_line_of_json_per_round(case: str, tmp_path: Path) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    path = tmp_path / "journal.jsonl"
    cost = Done(case, journal=path).model.result_.cost
    lines = [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(1, cost.rounds + 1))


def test_scikit_learn_can_clone_and_change_it(case: str) -> None:
    model = estimator(case)
    assert clone(model).get_params() == model.get_params()
    assert clone(model).set_params(seed=9).seed == 9
    assert set(model.get_params()) - {"seed"} == set(find(EVERY[case][0]).Settings.model_fields)
    assert estimator(case).get_params() == model.get_params()


def test_the_estimators_defaults_are_the_settings(case: str) -> None:
    method = EVERY[case][0]
    given = ESTIMATORS[method]().get_params()
    given.pop("seed")
    assert given == settings_of(find(method), {}).model_dump()


def test_an_unknown_setting_is_refused_with_the_nearest_known_one(case: str) -> None:
    with pytest.raises(StudyError, match="did you mean 'draws'"):
        settings_of(find(EVERY[case][0]), {"drwas": 3})


SENTINEL = 98765.4321


def _broken(change: Any, case: str = "aipw") -> dict[str, pd.DataFrame]:
    tables = {
        name: table.assign(a=table["a"].where(table.index > 0, SENTINEL))
        for name, table in tables_of(case).items()
    }
    return {**tables, "south": change(tables["south"])}


BROKEN = {
    "text in the outcome": lambda t: t.assign(y=t["y"].astype(object).where(t.index > 0, f"{SENTINEL}x")),
    "an infinite value": lambda t: t.assign(b=t["b"].where(t.index > 0, np.inf)),
    "a missing outcome": lambda t: t.assign(y=t["y"].where(t.index > 0)),
    "a missing column": lambda t: t.drop(columns="c"),
    "a third arm": lambda t: t.assign(w=t["w"].where(t.index > 0, 2)),
    "no rows": lambda t: t.head(0),
    "a table given twice": lambda _: _broken(lambda t: t)["north"],
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_refused_is_refused_without_the_value_of_a_row(case: str, broken: str) -> None:
    tables = _broken(BROKEN[broken], case)
    with pytest.raises(UnpooledError) as raised:
        estimator(case).fit(study_of(case), tables)
    text = str(raised.value)
    assert "98765" not in text
    values = pd.concat([t[["a", "b", "y"]] for t in tables_of(case).values()]).to_numpy().ravel()
    assert not any(f"{value:.4f}" in text for value in values)
    assert text.count("\n") == 2  # expected, found, what to do


def test_nothing_is_told_before_it_is_known(case: str) -> None:
    for ask in (lambda m: m.ate(), lambda m: m.summary(), lambda m: m.effect(PEOPLE, site="south")):
        with pytest.raises(StudyError, match="fit"):
            ask(estimator(case))


def test_an_unknown_site_is_refused_with_the_nearest_known_one(done: Done) -> None:
    with pytest.raises(StudyError, match="did you mean 'south'"):
        done.model.ate("suoth")


# --------------------------------------------------------------------------- engines


@pytest.mark.parametrize(
    ("case", "engine"),
    [
        pytest.param(case, engine, marks=[pytest.mark.thorough] * (engine == "pipes" and case in SLOWEST))
        for case in EVERY
        for engine in ENGINES
    ],
    indirect=["case"],
    scope="module",
)
def test_every_engine_gives_every_method_the_same_numbers(done: Done, case: str, engine: str) -> None:
    method, values = EVERY[case]
    study = with_settings(study_of(case), method, values, seed=1)
    running = Listening(ENGINES[engine](study, tables_of(case)))
    conduct = Conduct(study_procedure(study), running)
    rounds = list(conduct)
    expected = done.model.result_
    effects = conduct.result.fit.outcomes.effects("population")[..., 0]
    effects = effects * conduct.result.agreement.scaling.outcome_sd
    # Masked sums have fewer digits than those of floating-point numbers.
    accuracy = {"rtol": 0.0, "atol": 1e-6} if engine in MASKED else {"rtol": 1e-10}
    np.testing.assert_allclose(effects, expected.site_effects, **accuracy)
    assert len(rounds) == expected.cost.rounds
    sent = {site: sum(len(encode(replies[site])) for replies in running.replies) for site in SIZES}
    assert engine in MASKED or sent == expected.cost.bytes_up
    assert all(sum(r.traffic[site].up for r in rounds) >= sent[site] for site in SIZES)
    plain = [
        getattr(reply, name)
        for replies in running.replies
        for reply in replies.values()
        for name in reply.totals
    ]
    assert engine not in MASKED or not jax.tree.leaves(plain), "a reply with sums that are not masked"
    # No reply is as long as the table it was computed from would have to be if there were many more rows.
    for replies in running.replies:
        sizes = {site: len(encode(reply)) for site, reply in replies.items()}
        assert max(sizes.values()) - min(sizes.values()) <= 16, "a reply grows with its site's rows"


def test_without_effects_by_site_the_effect_over_all_sites_is_the_same(done: Done, case: str) -> None:
    method = EVERY[case][0]
    study = study_of(case).with_changes(by_site=False)
    if method == "meta_analysis":
        with pytest.raises(StudyError, match="by_site"):
            estimator(case).fit(study, tables_of(case))
        return
    model, expected = estimator(case).fit(study, tables_of(case)), done.model
    assert model.result_.site_effects.shape == (EVERY[case][1]["draws"], 1)
    if method in ("aipw", "causal_forest", "boosted_arms", "super_learner"):  # other random numbers
        error = expected.ate_draws().std()
        np.testing.assert_allclose(model.ate(), expected.ate(), atol=0.3 * error)
        np.testing.assert_allclose(model.ate_draws().std(), error, rtol=0.4)
    else:
        np.testing.assert_allclose(model.ate_draws(), expected.ate_draws(), rtol=1e-9)
    assert list(model.summary().index) == ["all sites"]
    np.testing.assert_allclose(model.effect(PEOPLE, site="south"), expected.effect(PEOPLE, site="south"))
    with pytest.raises(StudyError, match="by_site = false"):
        model.ate("south")


class Listening:
    """An engine whose replies are kept, to be looked at."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.sites, self.replies = engine, engine.sites, []

    def exclude(self, site: str) -> None:
        raise AssertionError("no site is lost here")

    def exchange(self, question: Question) -> Any:
        replies, traffic = self.engine.exchange(question)
        self.replies.append(replies)
        return replies, traffic
