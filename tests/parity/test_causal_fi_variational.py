"""The paper's own inference for CausalFI, against a slow NumPy version that meets one person at a time."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import pytest

from oracle import causal_fi_variational as oracle
from unpooled.coordinator.rounds import Conduct, run
from unpooled.methods.causal_fi import paper
from unpooled.methods.causal_fi.paper import mean_field
from unpooled.methods.causal_fi.paper.effects import NetworkAveragedOutcomes
from unpooled.methods.causal_fi.paper.fit import EFFECT, IMPUTATION, SURROGATES
from unpooled.methods.causal_fi.paper.model import NetworkModel, make_model, starts
from unpooled.methods.causal_fi.paper.stages import ImputationBound, Pseudo, SurrogateBound, pseudo
from unpooled.methods.causal_fi.settings import CausalFIContext
from unpooled.models.effects import AverageOfOutcomes
from unpooled.optimise.objective import evaluate
from unpooled.optimise.procedure import ask
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.engine import Traffic
from unpooled.protocol.messages import Question, Reply
from unpooled.protocol.records import Draws, IncompleteColumn, Parameters
from unpooled.protocol.rows import Rows, make_rows
from unpooled.site.answer import answer
from unpooled.site.site import Adoption, Site
from unpooled.study import ColumnRoles

pytestmark = pytest.mark.slow
draw, draw_pseudo, divergence = jax.jit(mean_field.draw), jax.jit(pseudo), jax.jit(mean_field.divergence)
draw_many = jax.jit(jax.vmap(mean_field.draw, (None, 0)))
Table = dict[str, Any]
"""ColumnRoles as NumPy arrays."""
X, SIZES = 2, (9, 6)  # padded they are as many as all together, so that all share what is compiled
KINDS, WIDTHS = ["numeric", "categorical", "binary", "count", "numeric"], [1, 2, 1, 1, 1]
MEAN, SD = np.array([0.0, 0.3, 0.4, 0.6, 2.0, 0.0]), np.array([1.0, 0.46, 0.49, 0.49, 1.4, 1.0])
RATES = {"continuous": (0.0, 1.0), "binary": (0.4, 0.49), "count": (2.5, 1.6)}


def context_of(family: str = "continuous", *, columns: bool = True) -> CausalFIContext:
    mean, sd = RATES[family]
    every = (IncompleteColumn(f"u{place}", *one) for place, one in enumerate(zip(KINDS, WIDTHS, strict=True)))
    return CausalFIContext(
        covariates=X,
        columns=tuple(every) if columns else (),
        incomplete_mean=MEAN if columns else np.zeros(0),
        incomplete_sd=SD if columns else np.zeros(0),
        sites=len(SIZES),
        family=family,
        outcome_mean=mean,
        outcome_sd=sd,
    )


def chosen(**changed: Any) -> Any:
    usual: dict[str, Any] = {
        "hidden": (4, 3), "rounds": 6, "learning_rate": 0.03, "monte_carlo": 2, "imputations": 5, "draws": 8,
        "noise_correlation": 0.0,
        "averaged": "completed",
    }  # fmt: skip
    return SimpleNamespace(**(usual | changed))


def people(count: int, seed: int, family: str = "continuous", holes: float = 0.4) -> Table:
    """Of every kind, in standard units; NaN where there is a hole."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 3, count)
    raw = np.column_stack([
        rng.normal(size=count), level == 1, level == 2, rng.random(count) < 0.6, rng.poisson(2.0, count),
        rng.normal(size=count),
    ])  # fmt: skip
    u = (raw - MEAN) / SD
    gone = rng.random((count, len(KINDS))) < holes
    u[np.repeat(gone, WIDTHS, axis=1)] = np.nan
    mean, sd = RATES[family]
    of_family = {"continuous": rng.normal, "binary": partial(rng.binomial, 1, mean)}
    y = of_family.get(family, partial(rng.poisson, mean))(size=count)
    w = rng.permutation(np.arange(count) % 2).astype(float)
    return {"x": rng.normal(size=(count, X)), "w": w, "y": (y - mean) / sd, "u": u}


def rows_of(table: Table, site: int) -> Rows:
    return make_rows(
        table["x"], table["w"], table["y"], fold=np.zeros(len(table["w"])), site=site, incomplete=table["u"]
    )


def _adopted(rows: Any, count: int, stages: dict[str, Any]) -> Adoption:
    return Adoption(rows, rows, count, None, None, None, None, None, stages, 0)  # type: ignore[arg-type]


class InTurn:
    """Sites that have adopted nothing but stages, one after the other: what they share is compiled once."""

    def __init__(self, tables: list[Table], stages: dict[str, Any]) -> None:
        columns = ColumnRoles(treatment="w", outcome="y", covariates=("a", "b"))
        self._sites = {
            f"site{place}": Site(
                f"site{place}", pd.DataFrame(), columns,
                adopted=_adopted(rows_of(table, place), len(table["w"]), stages),
            )
            for place, table in enumerate(tables)
        }  # fmt: skip

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self._sites)

    def exclude(self, site: str) -> None:
        raise AssertionError("no site is lost here")

    def exchange(self, question: Question) -> tuple[dict[str, Reply], dict[str, Traffic]]:
        replies: dict[str, Reply] = {}
        for place, (name, site) in enumerate(self._sites.items()):
            asked = decode(encode(question.to_site(place)))
            assert isinstance(asked, Question)
            reply = decode(encode(answer(site, asked)))
            assert isinstance(reply, Reply)
            replies[name] = reply
        return replies, {}


def scattered(posterior: Any, seed: int = 3) -> Any:
    """A q away from every special value."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: np.asarray(leaf) + 0.4 * rng.normal(size=np.shape(leaf)), posterior)


def stacked(tables: list[Table]) -> Table:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def one_of(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree)


class World:
    """A model of some family, a q of all its networks, people with holes at two sites, and a round's key."""

    def __init__(self, family: str = "continuous", *, holes: float = 0.4, **changed: Any) -> None:
        self.context, self.settings = context_of(family), chosen(**changed)
        self.model: NetworkModel = make_model(self.context)
        begun = starts(self.model, self.settings, self.context, 1)
        self.imputation, self.surrogates = scattered(begun.imputation), scattered(begun.surrogates, 4)
        self.tables = [people(count, 20 + site, family, holes) for site, count in enumerate(SIZES)]
        self.rows = [rows_of(table, site) for site, table in enumerate(self.tables)]
        self.key: Any = np.asarray(jax.random.key_data(jax.random.key(9)))

    def ask(self, name: str, free: Any, **fixed: Any) -> tuple[float, Any]:
        """The bound and its gradient, by one exchange with both sites."""
        kinds = {IMPUTATION: ImputationBound, SURROGATES: SurrogateBound}
        bound = kinds[name](self.model, self.settings.monte_carlo)
        step = evaluate(name, bound, one_of(free), one_of({"key": self.key, **fixed}))
        value, gradient, _ = run(step, InTurn(self.tables, {name: bound}))
        return float(value[0]), jax.tree.map(lambda leaf: np.asarray(leaf)[0], gradient)

    def keys(self) -> Any:
        return jax.random.split(jax.random.wrap_key_data(self.key), self.settings.monte_carlo)

    def slow_imputation_bound(self, posterior: Any) -> float:
        everybody = stacked(self.tables)
        drawn = [draw(posterior, key) for key in self.keys()]
        loss = np.mean([oracle.imputation_loss(self.context, one, everybody) for one in drawn])
        return float(loss) + oracle.divergence(posterior["mean"], posterior["log_sd"])

    def pseudo(self, key: Any) -> tuple[Any, list[Pseudo]]:
        """What is drawn beside the rows under one key; and the key of the surrogates' weights."""
        for_first, for_both, for_rows = jax.random.split(key, 3)
        imputation = draw(self.imputation, for_first)
        made = [
            draw_pseudo(self.model, imputation, rows, jax.random.fold_in(for_rows, site))
            for site, rows in enumerate(self.rows)
        ]
        sized = zip(made, SIZES, strict=True)
        return for_both, [jax.tree.map(lambda part, n=n: np.asarray(part)[:n], one) for one, n in sized]

    def slow_surrogate_bound(self, posterior: Any) -> float:
        everybody, losses = stacked(self.tables), []
        for key in self.keys():
            for_both, made = self.pseudo(key)
            together = jax.tree.map(lambda *parts: np.concatenate(parts), *made)
            drawn = draw(posterior, for_both)
            losses.append(oracle.surrogate_loss(self.context, drawn, everybody, together))
        return float(np.mean(losses)) + oracle.divergence(posterior["mean"], posterior["log_sd"])


def along(gradient: Any, move: Any) -> float:
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(move), strict=True)
    return float(sum(np.sum(a * b) for a, b in pairs))


def slope(bound: Any, free: Any, move: Any, step: float = 1e-6) -> float:
    ahead, behind = (jax.tree.map(lambda a, b, s=s: a + s * step * b, free, move) for s in (1, -1))
    return (bound(ahead) - bound(behind)) / (2.0 * step)


# --------------------------------------------------------------------------- the bounds


def test_stage_one_is_the_bound_of_the_stacked_rows() -> None:
    world = World()
    value, gradient = world.ask(IMPUTATION, world.imputation)
    assert value == pytest.approx(world.slow_imputation_bound(world.imputation), rel=1e-10)
    move = scattered(jax.tree.map(np.zeros_like, world.imputation), 5)
    expected = slope(world.slow_imputation_bound, world.imputation, move)
    assert along(gradient, move) == pytest.approx(expected, rel=1e-6)


@pytest.mark.thorough
def test_stage_two_is_the_bound_of_the_stacked_pseudo_rows() -> None:
    world = World()
    value, gradient = world.ask(SURROGATES, world.surrogates, imputation=world.imputation)
    assert value == pytest.approx(world.slow_surrogate_bound(world.surrogates), rel=1e-10)
    move = scattered(jax.tree.map(np.zeros_like, world.surrogates), 5)
    expected = slope(world.slow_surrogate_bound, world.surrogates, move)
    assert along(gradient, move) == pytest.approx(expected, rel=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["binary", "count"])
def test_outcomes_and_effects_of_other_families_are_the_textbooks(family: str) -> None:
    world = World(family, holes=0.0)
    outcome, table = world.surrogates["mean"]["outcome"], world.tables[0]
    found = eqx.filter_jit(world.model.log_outcome)(outcome, world.rows[0], world.rows[0].incomplete)
    everybody = zip(table["x"], table["u"], table["w"].astype(int), table["y"], strict=True)
    slow = [oracle.log_outcome(world.context, outcome, *person) for person in everybody]
    np.testing.assert_allclose(found[: SIZES[0]], slow, rtol=1e-10)
    effect = eqx.filter_jit(world.model.effect)(outcome, table["x"], table["u"])
    pairs = zip(table["x"], table["u"], strict=True)
    slow = [oracle.effect(world.context, outcome, x, u) for x, u in pairs]
    np.testing.assert_allclose(effect, slow, rtol=1e-9)


@pytest.mark.thorough
def test_the_sites_gradients_add_up_to_that_of_one_site_with_all_rows() -> None:
    world = World()
    parts = world.ask(IMPUTATION, world.imputation)
    world.tables = [stacked(world.tables)]
    whole = world.ask(IMPUTATION, world.imputation)
    assert parts[0] == pytest.approx(whole[0], rel=1e-10)
    for left, right in zip(jax.tree.leaves(parts[1]), jax.tree.leaves(whole[1]), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-8, atol=1e-8)


def test_the_divergence_is_the_textbooks() -> None:
    posterior = World().surrogates
    ours = float(divergence(posterior))
    assert ours == pytest.approx(oracle.divergence(posterior["mean"], posterior["log_sd"]), rel=1e-12)
    zeros = jax.tree.map(np.zeros_like, posterior["mean"])
    sds = jax.tree.map(lambda leaf, sd: np.full_like(leaf, np.log(sd)), zeros, mean_field.prior_sds(zeros))
    assert float(divergence({"mean": zeros, "log_sd": sds})) == pytest.approx(0.0, abs=1e-10)


@pytest.mark.thorough
def test_weights_are_drawn_from_q() -> None:
    posterior = World().imputation
    drawn = draw_many(posterior, jax.random.split(jax.random.key(2), 4000))
    for all_, mean, log_sd in zip(
        *map(jax.tree.leaves, (drawn, posterior["mean"], posterior["log_sd"])), strict=True
    ):
        sd = np.exp(log_sd)
        np.testing.assert_allclose((np.mean(all_, axis=0) - mean) / sd, 0.0, atol=5 / np.sqrt(4000))
        np.testing.assert_allclose(np.std(all_, axis=0) / sd, 1.0, atol=0.06)


# ---------------------------------------------------------------------- what is missing


def test_what_is_seen_stays_and_what_is_drawn_could_have_been_seen() -> None:
    world = World()
    _, made = world.pseudo(jax.random.key(8))
    for table, drawn in zip(world.tables, made, strict=True):
        seen = ~np.isnan(table["u"])
        np.testing.assert_array_equal(drawn.u[seen], table["u"][seen])
        assert not np.all(drawn.u[~seen] == 0.0)
        raw = (drawn.u * SD + MEAN)[:, 1:5]
        np.testing.assert_allclose(raw, np.round(raw), atol=1e-9)
        assert np.all(raw[:, :3] >= -1e-9) and np.all(raw[:, 0] + raw[:, 1] <= 1.0 + 1e-9)
        assert np.all((raw[:, 3] >= -1e-9) & (raw[:, 3] <= oracle.LARGEST_COUNT))
        assert np.array_equal(drawn.shown[:, 1], drawn.shown[:, 2])


@pytest.mark.thorough
def test_every_kind_is_drawn_as_often_as_its_density_says() -> None:
    world, copies = World(), 20_000
    said = np.random.default_rng(6).normal(scale=0.7, size=8)
    many: Any = np.tile(said, (copies, 1))
    drawn = np.asarray(eqx.filter_jit(world.model.entries.draw)(many, jax.random.key(1)))
    error = 5 * 0.5 / np.sqrt(copies)
    values, shares = np.unique(drawn, axis=0, return_inverse=False), {}
    for place, column in ((1, 1), (3, 2), (4, 3)):
        for value in np.unique(drawn[:, place]):
            person = values[np.flatnonzero(values[:, place] == value)[0]]
            expected = np.exp(oracle.log_entries(world.context, said, person)[column])
            if place != 1 or value > 0.0:  # the category's first feature, where it is on
                shares[place, value] = np.mean(drawn[:, place] == value) - expected
    assert len(shares) > 6
    assert max(map(abs, shares.values())) < error
    spread = np.exp(3.0 * np.tanh(said[6:] / 3.0))
    np.testing.assert_allclose(drawn[:, [0, 5]].std(axis=0), spread, rtol=0.04)
    np.testing.assert_allclose(drawn[:, [0, 5]].mean(axis=0), said[[0, 5]], atol=5 * spread.max() / 141)


@pytest.mark.thorough
def test_what_is_shown_tells_nothing_of_the_persons_own_pattern() -> None:
    world = World()
    table = people(3000, 1)
    table["u"][table["w"] == 1, 0] = np.nan
    made = draw_pseudo(world.model, world.imputation["mean"], rows_of(table, 0), jax.random.key(5))
    shown = np.asarray(made.shown)[:3000, 0]
    gap = shown[table["w"] == 1].mean() - shown[table["w"] == 0].mean()
    assert abs(gap) < 5 * np.sqrt(0.25 * 4 / 3000)
    assert shown.mean() == pytest.approx(0.5 * (0.5 + np.mean(~np.isnan(table["u"][:, 0]))), abs=0.05)


# ------------------------------------------------------------------------------- effects


def draws_of(world: World, count: int) -> Draws:
    """θ from q, as a fit leaves them."""
    keys = jax.random.split(jax.random.key(4), count)
    both, first = draw_many(world.surrogates, keys), draw_many(world.imputation, keys)
    fixed = {**both, "imputation": first, "key": jax.random.key_data(keys)}
    return Draws(jax.tree.map(np.array, fixed))


def test_the_effect_of_somebody_without_holes_is_the_difference_of_the_arms() -> None:
    world = World(holes=0.0)
    draws, table = draws_of(world, 8), world.tables[1]
    found = paper.conditional_effects(world.settings, world.context, draws, world.rows[1], world.rows[1])
    for k in range(3):
        outcome = jax.tree.map(lambda leaf, k=k: leaf[k], draws.shared["outcome"])
        pairs = zip(table["x"], table["u"], strict=True)
        slow = [oracle.effect(world.context, outcome, x, u) for x, u in pairs]
        np.testing.assert_allclose(found[k, : SIZES[1]], slow, rtol=1e-9)


@pytest.mark.thorough
def test_effects_of_any_pattern_are_averages_over_what_is_missing() -> None:
    world = World(hidden=(), imputations=4000)
    table = people(4, 77)
    table["u"] = (np.array([0.5, 1.0, 0.0, 1.0, 3.0, -0.2]) - MEAN) / SD * np.ones((4, 1))
    table["u"][0, 0] = table["u"][1, [0, 5]] = table["u"][2, 5] = table["u"][3] = np.nan
    draws, rows = draws_of(world, 2), rows_of(table, 0)
    found = paper.conditional_effects(world.settings, world.context, draws, world.rows[0], rows)
    assert np.all(np.isfinite(found))
    for k in range(2):
        weights = jax.tree.map(lambda leaf, k=k: leaf[k], draws.shared)
        for person in range(3):  # their holes are numbers, and lines of means are means of lines
            seen = ~np.isnan(table["u"][person])
            u, x = np.nan_to_num(table["u"][person]), table["x"][person]
            said = oracle.network(weights["confounders"]["layers"], 0, np.concatenate([x, u, seen]))
            filled = np.where(seen, u, said[:6])
            expected = oracle.effect(world.context, weights["outcome"], x, filled)
            assert found[k, person] == pytest.approx(expected, abs=0.25)
            assert found[k, person] != expected


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["continuous", "binary"])
def test_an_individual_effect_has_the_persons_own_outcome_in_it(family: str) -> None:
    world = World(family, holes=0.0)
    draws, table = draws_of(world, 8), world.tables[0]
    if family == "continuous":
        draws.shared["outcome"]["log_noise"][:] = -30.0
    found = paper.individual_effects(world.settings, world.context, draws, world.rows[0], None)
    mean, sd = RATES[family]
    sign, own = 2.0 * table["w"] - 1.0, table["y"]
    other = own - sign * found[:, : SIZES[0]]
    if family == "continuous":
        outcome = jax.tree.map(lambda leaf: leaf[0], draws.shared["outcome"])
        trio = zip(table["x"], table["u"], 1 - table["w"].astype(int), strict=True)
        slow = [oracle.predictor(world.context, outcome, x, u, w) for x, u, w in trio]
        np.testing.assert_allclose(other[0], slow, rtol=1e-8)
    else:
        raw = mean + sd * other
        np.testing.assert_allclose(raw, np.round(raw), atol=1e-6)
        assert raw.min() > -1e-6


@pytest.mark.parametrize("completed", [True, False])
def test_the_average_is_over_present_people_and_the_same_draw_in_both_arms(completed: bool) -> None:
    world = World(holes=0.0)
    for table in world.tables:  # all alike, and not like padding
        table["x"][:], table["u"][:] = [1.0, -2.0], world.tables[0]["u"][0]
    told = draws_of(world, 8).shared
    told.pop("confounders" if completed else "imputation")
    told["bootstrap"] = told.pop("key")
    question = ask(EFFECT, Parameters(fixed=told))
    found = run(
        question,
        InTurn(world.tables, {EFFECT: AverageOfOutcomes(NetworkAveragedOutcomes(world.model, completed))}),
    )
    outcomes = [jax.tree.map(lambda leaf, k=k: leaf[k], told["outcome"]) for k in range(8)]
    one = world.tables[0]["x"][0], world.tables[0]["u"][0]
    expected = [oracle.effect(world.context, outcome, *one) for outcome in outcomes]
    effects = found.per_site["population"][:, :, 0] @ np.array([-1.0, 1.0])
    np.testing.assert_allclose(effects, np.tile(expected, (2, 1)).T, rtol=1e-9)


# ----------------------------------------------------------------------------- whole fits


def fitted(tables: list[Table], context: Any, settings: Any, seed: int = 1) -> tuple[list[str], Any]:
    stages = paper.stages(settings, context)
    conduct = Conduct(paper.fit(settings, context, seed), InTurn(tables, stages))
    return [happened.question for happened in conduct], conduct.result


@pytest.mark.thorough
def test_a_fit_asks_two_bounds_and_then_the_average_effects() -> None:
    settings, context = chosen(), context_of()
    tables = [people(count, 30 + site) for site, count in enumerate(SIZES)]
    questions, found = fitted(tables, context, settings)
    gradients = [f"{name}: gradient" for name in (IMPUTATION, SURROGATES) for _ in range(settings.rounds)]
    assert questions == [*gradients, f"{EFFECT}: statistics"]
    assert len(questions) == paper.most_rounds(settings)
    assert found.outcomes.population.shape == (settings.draws, len(SIZES), 3, 2)
    assert np.all(np.isfinite(found.outcomes.population))
    assert all(len(leaf) == settings.draws for leaf in jax.tree.leaves(found.draws))
    assert found.diagnostics["bounds"][IMPUTATION]["rounds"] == settings.rounds
    again = fitted(tables, context, settings)[1]
    np.testing.assert_array_equal(found.outcomes.population, again.outcomes.population)
    new = rows_of(people(5, 3, holes=0.9), 1)
    for effects in (paper.conditional_effects, paper.individual_effects):
        said = effects(settings, context, found.draws, rows_of(tables[1], 1), new)
        assert said.shape == (settings.draws, len(new.present))
        assert np.all(np.isfinite(said))


@pytest.mark.thorough
def test_without_incomplete_columns_a_linear_truth_is_found() -> None:
    """Effects 1 + x₂; treatment follows x₁, which matters to the outcome."""
    rng, tables, effects = np.random.default_rng(5), [], []
    for _ in range(2):
        x = rng.normal(size=(60, X))
        w = (rng.random(60) < 1.0 / (1.0 + np.exp(-x[:, 0]))).astype(float)
        y = x[:, 0] + w * (1.0 + x[:, 1]) + 0.3 * rng.normal(size=60)
        tables.append({"x": x, "w": w, "y": y, "u": np.zeros((60, 0))})
        effects.append(1.0 + x[:, 1])
    context = context_of(columns=False)
    settings = chosen(hidden=(), rounds=150, learning_rate=0.1, draws=100, monte_carlo=2)
    questions, found = fitted(tables, context, settings)
    assert not any(question.startswith(IMPUTATION) for question in questions)
    history = found.diagnostics["bounds"][SURROGATES]["history"].values
    assert np.mean(history[-20:]) < 0.5 * np.mean(history[:20])
    ate = found.outcomes.effects("population")[..., 0].mean(axis=1)
    low, high = np.quantile(ate, [0.025, 0.975])
    assert low < np.mean(effects) < high
    assert high - low < 0.6
    for site, (table, truth) in enumerate(zip(tables, effects, strict=True)):
        rows = rows_of(table, site)
        said = paper.conditional_effects(settings, context, found.draws, rows, rows)[:, :60]
        assert np.sqrt(np.mean((said.mean(axis=0) - truth) ** 2)) < 0.2
        own = paper.individual_effects(settings, context, found.draws, rows, None)[:, :60]
        assert np.sqrt(np.mean((own.mean(axis=0) - truth) ** 2)) < 0.5
