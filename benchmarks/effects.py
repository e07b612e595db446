"""Effects by name: ratios, numbers needed to treat, effects in the treated, subgroups, rare outcomes.

    python benchmarks/effects.py ratios [--replicates 200] [--fedci 0] [--resamples 300]
    python benchmarks/effects.py nnt
    python benchmarks/effects.py lalonde [--only AIPW] [--sample randomised survey]
    python benchmarks/effects.py subgroups [--replicates 200] [--fedci 20]
    python benchmarks/effects.py risks [--replicates 40] [--outcome common rare count] [--family NAME]
                                       [--method CausalRFF] [--confounding observed latent]
    python benchmarks/effects.py transport [--replicates 40] [--only AIPW FedCI] [--shift 0 0.3]

`ratios`: a simulated study with a 0/1 outcome, beside g-computation by `statsmodels` with a bootstrap on the
stacked table; then the coverage over replicates. `nnt`: death by 1992 in NHEFS, and quitting smoking.
`lalonde`: the effect of a training programme on the earnings of those who took part, from the randomised
sample of Dehejia and Wahba, and with the controls replaced by people of a survey. `subgroups`: coverage of
intervals of subgroups, size of the test that they are equal, federated and stacked. `risks`: coverage of
FedCI's or CausalRFF's intervals of people's effects by fifths of their risk without treatment, for outcomes
that are common, rare, or counts. `transport`: coverage of the average effect in a population elsewhere, from
a table of its people and from its means and sds. The real data come with the package `causaldata`. Numbers in
brackets are Monte Carlo errors.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable
from itertools import product

import numpy as np
import pandas as pd
from scipy.special import expit, ndtri

import unpooled as up
from unpooled.data.nhefs import REGION_OF, nhefs_study
from unpooled.errors import FailedCheckWarning

Tables = dict[str, pd.DataFrame]
Estimator = up.AIPW | up.FedCI
ESTIMATORS: dict[str, Callable[[], Estimator]] = {"AIPW": lambda: up.AIPW(), "FedCI": lambda: up.FedCI()}
LARGE = 1_000_000
RATIOS = ["difference", "ratio", "odds ratio"]


def share(values: Iterable[float]) -> str:
    """The mean over replicates, with its Monte Carlo error."""
    found = np.asarray(list(values), float)
    return f"{found.mean():.3f} ({found.std() / np.sqrt(len(found)):.3f})"


def covers(lower: np.ndarray, upper: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return (np.asarray(lower) <= truth) & (truth <= np.asarray(upper))


def ends(table: pd.DataFrame) -> str:
    """Estimates and intervals of `effects`, on one line."""
    return "  ".join(
        f"{name} {row.estimate:.4g} ({row.lower:.4g} to {row.upper:.4g})"
        for name, row in zip(table.index.get_level_values(-1), table.itertuples(), strict=True)
    )


# --------------------------------------------------------------------------- ratios


def risks_of(people: pd.DataFrame, site: int) -> np.ndarray:
    """True risks [person, arm] at a site."""
    control = -1.0 + 0.3 * (site - 1) + 0.8 * people["a"] - 0.5 * people["b"] + 0.4 * people["flag"]
    return expit(np.stack([control, control + 0.5 + 0.4 * people["a"]], axis=1))


def drawn(count: int, site: int, rng: np.random.Generator) -> pd.DataFrame:
    a, b = rng.standard_normal((2, count))
    return pd.DataFrame({"a": a + 0.3 * (site - 1), "b": b, "flag": rng.integers(0, 2, count)})


def confounded_study(seed: int, people: int = 300) -> Tables:
    """Three sites that differ in covariates, in how often they treat, and in risk."""
    rng, tables = np.random.default_rng(seed), {}
    for site in range(3):
        table = drawn(people, site, rng)
        chance = expit(0.7 * table["a"] - 0.4 * table["b"] + 0.3 * (1 - site))
        arm = (rng.random(people) < chance).astype(int).to_numpy()
        risk = risks_of(table, site)[np.arange(people), arm]
        tables[f"site{site}"] = table.assign(w=arm, y=(rng.random(people) < risk).astype(int))
    return tables


def compared(means: np.ndarray) -> np.ndarray:
    """Difference, ratio and odds ratio of the means [..., arm]."""
    control, treated = means[..., 0], means[..., 1]
    odds = treated * (1 - control) / (control * (1 - treated))
    return np.stack([treated - control, treated / control, odds], axis=-1)


def g_computation(stacked: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """Logistic regression with products of arm and covariates, standardised over everybody.

    People are resampled within sites; intervals are quantiles over the resamples.
    """
    import statsmodels.api as sm

    covariates = stacked[["a", "b", "flag"]].to_numpy(float)
    sites = pd.get_dummies(stacked["site"]).to_numpy(float)
    arm, outcome = stacked["w"].to_numpy(float)[:, None], stacked["y"].to_numpy(float)

    def design(w: np.ndarray, of: np.ndarray) -> np.ndarray:
        return np.hstack([sites[of], w, covariates[of], w * covariates[of]])

    def means(of: np.ndarray) -> np.ndarray:
        fit = sm.Logit(outcome[of], design(arm[of], of)).fit(disp=False)
        return np.array([fit.predict(design(np.full_like(arm[of], w), of)).mean() for w in (0.0, 1.0)])

    rng = np.random.default_rng(seed)
    own = [np.flatnonzero(column) for column in sites.T]
    again = [means(np.concatenate([rng.choice(part, len(part)) for part in own])) for _ in range(resamples)]
    lower, upper = np.quantile(compared(np.array(again)), [0.025, 0.975], axis=0)
    estimate = compared(means(np.arange(len(stacked))))
    return pd.DataFrame({"estimate": estimate, "lower": lower, "upper": upper}, index=pd.Index(RATIOS))


def ratios(asked: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    large = [risks_of(drawn(LARGE, site, rng), site).mean(axis=0) for site in range(3)]
    truth = compared(np.mean(large, axis=0))
    print("truth", dict(zip(RATIOS, truth.round(4).tolist(), strict=True)), flush=True)
    study = up.Study(treatment="w", outcome="y", covariates=["a", "b", "flag"])
    covered: dict[str, list[np.ndarray]] = {"AIPW": [], "FedCI": [], "g-computation": []}
    for one in range(asked.replicates):
        tables = confounded_study(asked.first + one)
        stacked = pd.concat([table.assign(site=name) for name, table in tables.items()])
        found = {"g-computation": g_computation(stacked, asked.resamples, one)} if asked.resamples else {}
        for name, make in ESTIMATORS.items():
            if name == "AIPW" or one < max(asked.fedci, 1):
                found[name] = make().fit(study, tables).effects("everybody").droplevel("group").loc[RATIOS]
        for name, table in found.items():
            covered[name].append(covers(table["lower"], table["upper"], truth))
            if one == 0:
                print(f"{name:14s}", ends(table), flush=True)
    for name, rows in covered.items():
        if not rows:
            continue
        shares = [
            f"{effect} {share(column)}" for effect, column in zip(RATIOS, np.array(rows).T, strict=True)
        ]
        print(f"covered, {len(rows)} replicates: {name:14s}", "  ".join(shares), flush=True)


# --------------------------------------------------------------------------- real data


def unadjusted(table: pd.DataFrame, treatment: str, outcome: str) -> tuple[float, float, float]:
    """Difference of means, with Welch's interval."""
    control, treated = (table.loc[table[treatment] == arm, outcome].astype(float) for arm in (0, 1))
    reach = ndtri(0.975) * np.sqrt(treated.var() / len(treated) + control.var() / len(control))
    found = float(treated.mean() - control.mean())
    return found, found - reach, found + reach


def nnt(asked: argparse.Namespace) -> None:
    from causaldata import nhefs

    people = pd.DataFrame(nhefs.load_pandas().data)
    people = people.loc[people["birthplace"].isin(list(REGION_OF))]
    covariates = nhefs_study().columns.covariates
    table = people[[*covariates, "qsmk", "death"]].astype({name: int for name in ("qsmk", "death")})
    for name in ("education", "exercise", "active"):
        table[name] = "level " + table[name].astype(int).astype(str)
    regions = [REGION_OF[int(code)] for code in people["birthplace"]]
    tables = {region: part for region, part in table.groupby(np.array(regions))}
    print(len(table), "people", {name: len(part) for name, part in tables.items()}, flush=True)
    found = unadjusted(table, "qsmk", "death")
    print(
        "unadjusted     difference {:.4f} ({:.4f} to {:.4f})".format(*found),
        "number needed to treat {:.1f} ({:.1f} to {:.1f})".format(*(1.0 / np.array(found))[[0, 2, 1]]),
    )
    study = up.Study(treatment="qsmk", outcome="death", covariates=covariates, diagnostics=True)
    for name in asked.only:
        model = ESTIMATORS[name]().fit(study, tables)
        effects = model.effects("everybody").droplevel("group")
        print(f"{name:14s}", ends(effects))
        print("   note:", effects.loc["number needed to treat", "note"])
        show_failed(model)


def show_failed(model: Estimator) -> None:
    checks = model.checks()
    failed = checks.loc[~checks["passed"].astype(bool)]
    lines = [
        f"{row.name}: {row.found:.3g}, {row.passes_if} {row.threshold:.3g}" for row in failed.itertuples()
    ]
    print("   failed checks:", "; ".join(lines) or "none", flush=True)


def lalonde(asked: argparse.Namespace) -> None:
    from causaldata import cps_mixtape, nsw_mixtape

    trial, survey = (pd.DataFrame(one.load_pandas().data) for one in (nsw_mixtape, cps_mixtape))
    observed = pd.concat([trial.loc[trial["treat"] == 1], survey])
    covariates = ["age", "educ", "black", "hisp", "marr", "nodegree", "re74", "re75", "u74", "u75"]
    study = up.Study(treatment="treat", outcome="re78", covariates=covariates, diagnostics=True)
    for kind, table in {"randomised": trial, "survey": observed}.items():
        if kind not in asked.sample:
            continue
        table = table.assign(u74=(table["re74"] == 0).astype(int), u75=(table["re75"] == 0).astype(int))
        table = table.astype({"treat": int})[[*covariates, "treat", "re78"]].reset_index(drop=True)
        found = unadjusted(table, "treat", "re78")
        print(f"{kind}, {len(table)} people, unadjusted {found[0]:.0f} ({found[1]:.0f} to {found[2]:.0f})")
        cuts = {
            "one table": np.zeros(len(table), int),
            "at random": np.random.default_rng(0).permutation(len(table)) % 3,
            "by age": np.digitize(table["age"], [21, 27]),
        }
        for cut, sites in cuts.items():
            tables = {f"site{site}": part for site, part in table.groupby(sites)}
            sizes = [
                f"{int(part['treat'].sum())} + {int((1 - part['treat']).sum())}" for part in tables.values()
            ]
            for name in asked.only:
                model = ESTIMATORS[name]().fit(study, tables)
                print(
                    f"{kind}, {cut} ({', '.join(sizes)}), {name}: in the treated {model.att():.0f}",
                    "({:.0f} to {:.0f}), in everybody".format(*model.att_interval()),
                    "{:.0f} ({:.0f} to {:.0f})".format(model.ate(), *model.ate_interval()),
                )
                show_failed(model)


# --------------------------------------------------------------------------- subgroups

AGES = [30.0, 50.0, 65.0]


def people_with_ages(
    count: int, effects_differ: bool, rng: np.random.Generator
) -> tuple[pd.DataFrame, np.ndarray]:
    """People, and their true effects."""
    people = pd.DataFrame(
        {"age": rng.uniform(30, 80, count), "sex": rng.choice(["f", "m"], count), "b": rng.normal(size=count)}
    )
    slope = 0.5 * (people["age"] - 55) / 15 + 0.4 * (people["sex"] == "f")
    return people, (1.0 + (slope if effects_differ else 0.0 * slope) + 0.3 * people["b"]).to_numpy()


def study_with_subgroups(seed: int, effects_differ: bool, people: int = 200) -> Tables:
    rng, tables = np.random.default_rng(seed), {}
    for site in range(3):
        table, effect = people_with_ages(people, effects_differ, rng)
        old = (table["age"].to_numpy() - 55) / 15
        arm = (rng.random(people) < expit(0.6 * old - 0.4 * table["b"])).astype(int)
        mean = old + 0.5 * table["b"] + 0.3 * (table["sex"] == "f") + 0.3 * (site - 1)
        tables[f"site{site}"] = table.assign(w=arm, y=mean + arm * effect + rng.normal(size=people))
    return tables


def subgroups(asked: argparse.Namespace) -> None:
    study = up.Study(
        treatment="w", outcome="y", covariates=["age", "sex", "b"], subgroups={"age": AGES, "sex": "levels"}
    )
    for differ in (True, False):
        large, effect = people_with_ages(LARGE, differ, np.random.default_rng(0))
        groups = [np.digitize(large["age"], AGES) == one for one in (1, 2, 3)]
        groups += [large["sex"] == level for level in ("f", "m")]
        truth = np.array([effect[one].mean() for one in groups])
        for name, count in (("AIPW", asked.replicates), ("FedCI", asked.fedci)):
            rows, p_values = [], []
            for one in range(count):
                model = ESTIMATORS[name]().fit(study, study_with_subgroups(asked.first + one, differ))
                gate = model.gate()
                apart = covers(gate["lower"], gate["upper"], truth)
                together = covers(gate["simultaneous_lower"], gate["simultaneous_upper"], truth)
                rows.append([*apart, together.all()])
                p_values.append([model.gate_test(by).p_value < 0.05 for by in ("age", "sex")])
            if not rows:
                continue
            each, tests = np.array(rows, float), np.array(p_values, float)
            print(f"{name}, effects {'differ' if differ else 'are equal'}, {count} replicates: covered")
            print("  ", "  ".join(f"{g} {share(c)}" for g, c in zip(gate.index, each.T, strict=False)))
            print(
                "   mean of the five",
                share(each[:, :5].mean(axis=1)),
                " all five together",
                share(each[:, 5]),
            )
            print("   test below 0.05: age", share(tests[:, 0]), " sex", share(tests[:, 1]), flush=True)
    tables = study_with_subgroups(asked.first, True)
    stacked = {"site": pd.concat(tables.values(), ignore_index=True)}
    apart, together = (
        up.AIPW(site_terms="none", folds=1).fit(study, one).gate() for one in (tables, stacked)
    )
    columns = ["control", "treated", "effect", "lower", "upper"]
    print("AIPW apart and stacked, largest difference in a subgroup:")
    print("  ", (apart[columns] - together[columns]).abs().max().to_dict())


# --------------------------------------------------------------------------- risks


def means_of(people: pd.DataFrame, shift: float, outcome: str) -> np.ndarray:
    """True mean outcomes [person, arm]."""
    level = {"common": -1.0, "rare": -4.25, "count": 0.3}[outcome]
    control = level + shift + 0.6 * people["a"] - 0.4 * people["b"] + 0.3 * people["flag"]
    both = np.stack([control, control - 0.4 + 0.3 * people["a"]], axis=1)
    return np.exp(both) if outcome == "count" else expit(both)


def study_of_risks(outcome: str, seed: int, people: int = 300) -> tuple[Tables, np.ndarray, np.ndarray]:
    """The tables, everybody's true means [person, arm], and the shifts of the sites."""
    rng, tables, means = np.random.default_rng(seed), {}, []
    shifts = 0.2 * rng.normal(size=3)
    for site, shift in enumerate(shifts):
        table = drawn(people, 1, rng)
        arm = (rng.random(people) < expit(0.5 * table["a"])).astype(int).to_numpy()
        own = means_of(table, shift, outcome)
        mean = own[np.arange(people), arm]
        scale = rng.gamma(2.0, 0.5, people)  # counts are negative binomial, of size 2
        y = rng.poisson(mean * scale) if outcome == "count" else rng.random(people) < mean
        tables[f"site{site}"] = table.assign(w=arm, y=y.astype(float))
        means.append(own)
    return tables, np.concatenate(means), shifts


Fitted = up.FedCI | up.CausalRFF


def outcomes_below_0(model: Fitted, tables: Tables) -> np.ndarray:
    """Whether draws of people's effects imply that the outcome in their other arm is below 0."""
    found = []
    for site, table in tables.items():
        sign, seen = 2.0 * table["w"].to_numpy() - 1.0, table["y"].to_numpy()
        found.append(seen - sign * model.ite_draws(site) < -1e-9)
    return np.concatenate(found, axis=1)


def fitted(asked: argparse.Namespace, confounding: str | None, study: up.Study, tables: Tables) -> Fitted:
    if asked.method == "FedCI":
        return up.FedCI().fit(study, tables)
    return up.CausalRFF(confounding=confounding).fit(study, tables)


def risks(asked: argparse.Namespace) -> None:
    candidates = asked.confounding if asked.method == "CausalRFF" else [None]
    for outcome, confounding in product(asked.outcome, candidates):
        family = asked.family or ("count" if outcome == "count" else "binary")
        study = up.Study(treatment="w", outcome="y", covariates=["a", "b", "flag"], family=family)
        large = drawn(LARGE // 5, 1, np.random.default_rng(0))
        rows, events = [], []
        for one in range(asked.replicates):
            tables, means, shifts = study_of_risks(outcome, asked.first + one)
            events.append(np.mean([table["y"].mean() for table in tables.values()]))
            model = fitted(asked, confounding, study, tables)
            draws = np.concatenate(
                [model.effect_draws(table, site=site) for site, table in tables.items()], axis=1
            )
            lower, upper = np.quantile(draws, [0.025, 0.975], axis=0)
            truth = means[:, 1] - means[:, 0]
            fifth = np.argsort(np.argsort(means[:, 0])) * 5 // len(means)
            covered = covers(lower, upper, truth)
            both = np.mean([means_of(large, shift, outcome).mean(axis=0) for shift in shifts], axis=0)
            below, above = model.ate_interval()
            outside = (lower < -1.0) | (upper > 1.0) if outcome != "count" else np.zeros(1)
            arm_means = model.mean_draws()
            ratio = model.effects("everybody").droplevel("group").loc["ratio"]
            rows.append(
                {f"fifth {place + 1}": covered[fifth == place].mean() for place in range(5)}
                | {"all people": covered.mean(), "average": below <= both[1] - both[0] <= above}
                | {"ratio": ratio["lower"] <= both[1] / both[0] <= ratio["upper"]}
                | {"CATE width": np.mean(upper - lower), "average's width": above - below}
                | {"root PEHE": np.sqrt(np.mean((draws.mean(axis=0) - truth) ** 2))}
                | {"average's error": model.ate() - (both[1] - both[0]), "beyond ±1": outside.mean()}
                | {"arm means below 0": np.mean(arm_means < 0.0)}
                | {"individual effects impossible": np.mean(outcomes_below_0(model, tables))}
            )
        table, name = pd.DataFrame(rows), " ".join(filter(None, (asked.method, confounding)))
        print(f"{name}, {outcome}, family {family}, {len(table)} replicates, mean {np.mean(events):.3f}")
        print("  ", "  ".join(f"{name} {share(table[name])}" for name in table), flush=True)


# --------------------------------------------------------------------------- elsewhere

PLACES = [-0.4, -0.2, 0.0, 0.2, 0.4]
"""Means of `a` at the sites."""
ELSEWHERE = {"a": (0.8, 0.8), "b": (-0.5, 1.0), "flag": 0.7}
"""Means and sds of the population elsewhere, and the share of ones."""
CURVES: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "linear": lambda people: 1.0 + 0.5 * people["a"] + 0.3 * people["flag"],
    "bent": lambda people: 1.0 + 0.8 * np.sin(1.5 * people["a"]) + 0.3 * people["flag"],
}
"""Effects of people at a site without a shift."""


def people_elsewhere(count: int, rng: np.random.Generator) -> pd.DataFrame:
    normal = {name: rng.normal(*ELSEWHERE[name], count) for name in ("a", "b")}
    return pd.DataFrame({**normal, "flag": rng.binomial(1, ELSEWHERE["flag"], count)})


def sites_that_differ(curve: str, shift: float, seed: int, people: int = 150) -> tuple[Tables, float]:
    """The tables of five sites, with shifts of outcomes and effects, and the effect's shift elsewhere."""
    rng, tables = np.random.default_rng(seed), {}
    for site, place in enumerate(PLACES):
        a, b, noise = rng.normal(size=(3, people))
        table = pd.DataFrame({"a": a + place, "b": b, "flag": rng.integers(0, 2, people)})
        arm = (rng.random(people) < expit(0.6 * table["a"] - 0.4 * table["b"])).astype(int)
        level, more = shift * rng.normal(size=2)
        effect = CURVES[curve](table) + more
        y = 0.5 * table["a"] + 0.3 * table["b"] ** 2 + level + arm * effect + noise
        tables[f"site{site}"] = table.assign(w=arm, y=y)
    return tables, shift * float(rng.normal())


def transport(asked: argparse.Namespace) -> None:
    study = up.Study(treatment="w", outcome="y", covariates=["a", "b", "flag"])
    everybody = people_elsewhere(LARGE, np.random.default_rng(0))
    for curve, shift in product(CURVES, asked.shift):
        average = float(CURVES[curve](everybody).mean())
        here: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
        for one in range(asked.replicates):
            tables, own = sites_that_differ(curve, shift, asked.first + one)
            sample = people_elsewhere(300, np.random.default_rng([asked.first + one, 1]))
            for name in asked.only:
                model = ESTIMATORS[name]().fit(study, tables)
                ways = {"table": model.transport(sample), "moments": model.transport_to_moments(ELSEWHERE)}
                for way, found in ways.items():
                    lower, upper = found.ate_interval()
                    covered = lower <= average + own <= upper
                    here.setdefault((name, way), []).append(
                        (found.ate() - average - own, covered, upper - lower)
                    )
        for (name, way), rows in here.items():
            error, covered, width = np.array(rows, float).T
            print(
                f"{curve}, site shifts {shift:g}, {name}, {way}, {len(rows)} replicates:",
                f"error {share(error)}  rmse {np.sqrt(np.mean(error**2)):.3f}",
                f" covered {share(covered)}  width {share(width)}",
                flush=True,
            )


PARTS = {
    "ratios": ratios, "nnt": nnt, "lalonde": lalonde, "subgroups": subgroups, "risks": risks,
    "transport": transport,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--fedci", type=int, default=0, help="replicates of FedCI, which takes longer")
    parser.add_argument("--resamples", type=int, default=300, help="of the bootstrap; 0 for none")
    parser.add_argument("--only", nargs="*", choices=list(ESTIMATORS), default=list(ESTIMATORS))
    parser.add_argument(
        "--sample", nargs="*", choices=["randomised", "survey"], default=["randomised", "survey"]
    )
    parser.add_argument("--outcome", nargs="*", choices=["common", "rare", "count"], default=["common"])
    parser.add_argument("--method", choices=["FedCI", "CausalRFF"], default="FedCI")
    parser.add_argument(
        "--confounding", nargs="*", choices=["auto", "observed", "latent"], default=["observed"]
    )
    parser.add_argument("--family", choices=["continuous", "binary", "count"])
    parser.add_argument("--shift", nargs="*", type=float, default=[0.0, 0.3], help="sd of the sites' shifts")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", FailedCheckWarning)
    PARTS[asked.part](asked)


if __name__ == "__main__":
    main()
