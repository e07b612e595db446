"""The sentences of the terminal output and the report: estimand, assumptions, limitations, citation."""

from __future__ import annotations

from collections.abc import Mapping

from unpooled.effects.contrasts import CONTRASTS, CONTROL, DIFFERENCE, DIFFERENCES_ONLY, NOBODY, TREATED
from unpooled.report.json_types import ReportContent, ResultContent, SubgroupTest
from unpooled.report.numbers import PLAIN, between, form_of, significant

METHODS = {
    "fedci": "FedCI: a Gaussian-process model of both potential outcomes, fitted across all sites",
    "causal_rff": "CausalRFF: random Fourier features with site-specific terms",
    "causal_fi": "CausalFI: a joint model of outcome, treatment and incomplete confounders",
    "aipw": "AIPW: cross-fitted, doubly robust regressions of treatment and outcome",
    "meta_analysis": "meta-analysis of site-specific doubly robust estimates",
    "causal_forest": "causal forest, with doubly robust average effects",
    "boosted_arms": "boosted trees in each arm, with doubly robust average effects",
    "super_learner": "super learner: several methods, weighted by a causal loss on held-out people",
}
ESTIMANDS = {
    "population": "The estimand is the population average treatment effect: the mean difference in the "
    "outcome if everyone were treated compared with if no one were, among people like those at the sites, "
    "with the sites in the proportions of the study.",
    "sample": "The estimand is the sample average treatment effect: the mean difference in the outcome if "
    "everyone in the study were treated compared with if no one were.",
}
COMMON = (
    "No unmeasured confounding: given the covariates, no other variable influences both treatment and "
    "outcome.",
    "Overlap: at every value of the covariates, a person could have been treated or untreated.",
    "No interference: one person's treatment does not affect another's outcome, and there is only one "
    "version of the treatment.",
    "Columns with the same name measure the same quantity at every site.",
)
OWN = {
    "fedci": (
        "Both potential outcomes are smooth functions of the covariates, and the functions are the same at "
        "every site.",
    ),
    "causal_rff": (
        "Sites differ in the outcome's regression by the chosen site terms only; everything else is the same "
        "at every site.",
    ),
    "causal_fi": (
        "Values are missing at random: whether a value is missing depends only on the person's observed "
        "data.",
    ),
    "aipw": ("At least one of the treatment model and the outcome model is correctly specified.",),
    "causal_forest": (
        "Given the covariates, sites differ by a constant in the log odds of treatment and in the mean "
        "outcome, and in nothing else.",
    ),
    "boosted_arms": (
        "Given the covariates, sites differ by a constant in the log odds of treatment and in the mean "
        "outcome, and in nothing else.",
    ),
    "super_learner": ("At least one of the candidates is right about how effects depend on the covariates.",),
    "meta_analysis": (
        "At every site, at least one of the treatment model and the outcome model is correctly specified.",
    ),
}
LATENT = (
    "A latent confounder, which nobody observed, accounts for all confounding: given it, no other variable "
    "influences both treatment and outcome.",
    "The covariates are proxies of the latent confounder: given it, they are independent of each other, of "
    "treatment and of outcome.",
)
CONFOUNDING = {
    "observed": "observed covariates",
    "categorical": "latent classes, of which the covariates are proxies",
    "gaussian": "a Gaussian latent confounder, of which the covariates are proxies",
}
"""CausalRFF's candidates in words."""
LIMITS = (
    "An effect estimated from observational data is only as reliable as the assumptions above. The data "
    "cannot confirm the first of them, no unmeasured confounding.",
    "The intervals reflect uncertainty within the model. They reflect neither the chance that the model "
    "itself is wrong nor how the sites were selected.",
    "The sites sent sums and draws of average effects, not rows. Sums over few people can still disclose "
    "information about them; each site's disclosure limits determine which questions it answers.",
)


def sentence(content: ResultContent) -> str:
    """The average effect and its interval in one sentence, from the content of result.json."""
    people, sites = content["people"], content["site_count"]
    over = f"estimated from {people:,} people at {sites} site{'s' if sites != 1 else ''}."
    lower, upper = content["ate_interval"]
    ate = content["ate"]
    if ate is None or lower is None or upper is None:
        what = f"the average effect of '{content['treatment']}' on '{content['outcome']}'"
        return f"The fit gave no finite number for {what}, {over}"
    unit = f" {content['outcome_unit']}" if content["outcome_unit"] else ""
    return (
        f"'{content['treatment']}' changes '{content['outcome']}' by {significant(ate, signed=True)}{unit} "
        f"on average ({content['interval_probability']:.0%} interval {between(lower, upper)}), {over}"
    )


def effect_names(content: ResultContent) -> list[str]:
    """The effects that are known, or whose absence has a reason other than the method, in their order."""
    known = [
        one["effect"]
        for group in content.get("average_effects", [])
        for one in group["effects"]
        if one["estimate"] is not None or one["note"] not in ("", DIFFERENCES_ONLY)
    ]
    return list(dict.fromkeys(known))


def effect_forms(content: ResultContent | ReportContent) -> dict[str, str]:
    """The format of each effect's numbers, from its interval in the first group that has one.

    Mean outcomes have the decimals of their difference.
    """
    found: dict[str, str] = {}
    for group in content.get("average_effects", []):
        for one in group["effects"]:
            if one["lower"] is not None and one["upper"] is not None:
                found.setdefault(one["effect"], form_of(one["lower"], one["upper"]))
    means = dict.fromkeys((CONTROL, TREATED), found.get(DIFFERENCE, PLAIN))
    return {**dict.fromkeys(CONTRASTS, PLAIN), **found, **means}


def effect_notes(content: ResultContent) -> list[str]:
    """What the notes of effects say, once each, with the effects and groups that they concern."""
    concerned: dict[tuple[str, str], list[str]] = {}
    groups = content.get("average_effects", [])
    for group in groups:
        for one in group["effects"]:
            if one["note"] and one["note"] not in (DIFFERENCES_ONLY, NOBODY):
                concerned.setdefault((one["effect"], one["note"]), []).append(group["group"])
    return [
        f"{effect.capitalize()}{_of(names, len(groups))}: {note}."
        for (effect, note), names in concerned.items()
    ]


def _of(names: list[str], groups: int) -> str:
    """The groups in brackets, unless they are all."""
    return "" if len(names) == groups else f" ({', '.join(names)})"


def differs(test: SubgroupTest) -> str:
    """Whether effects differ between the groups of a column, in a sentence."""
    p_value = f"p = {test['p_value']:.2g}" if test["p_value"] >= 0.001 else "p < 0.001"
    if test["p_value"] < 0.05:
        return f"Between groups of {test['by']}, the effects differ ({p_value})."
    return f"Between groups of {test['by']}, the effects need not differ ({p_value})."


def failed_checks(content: ResultContent) -> str:
    """Which checks failed, in one sentence; empty if none did."""
    checks = content.get("checks", [])
    failed = [named(one) for one in checks if not one["passed"]]
    return f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}." if failed else ""


def named(check: Mapping[str, object]) -> str:
    """The name of a check, and whether it concerns effects of people only."""
    only = check.get("concerns", "all effects") == "effects of people"
    return (
        f"{check['name']} (concerns effects of people, not average effects)" if only else str(check["name"])
    )


def assumptions(method: str, chosen: str | None = None) -> list[str]:
    """The assumptions under which the estimate is a causal effect; `chosen` is CausalRFF's candidate."""
    if method == "causal_rff" and chosen in ("categorical", "gaussian"):
        return [*LATENT, *COMMON[1:]]
    return [*COMMON, *OWN.get(method, ())]


def confounding(chosen: str) -> str:
    """What CausalRFF takes for the confounder."""
    return CONFOUNDING.get(chosen, chosen)


def citation(study: str, version: str, digest: str) -> str:
    """How to cite this result."""
    return f"unpooled {version}, study '{study}', study hash {digest[:12]}."
