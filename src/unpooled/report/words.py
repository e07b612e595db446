"""What a study's numbers mean, in sentences: for the screen, the report and whoever reads it aloud."""

from __future__ import annotations

from typing import Any

METHODS = {
    "fedci": "FedCI: a Gaussian-process model of both potential outcomes, fitted over all sites",
    "causal_rff": "CausalRFF: random Fourier features, with terms by which sites may differ",
    "causal_fi": "CausalFI: outcome, treatment and missing confounders modelled together",
    "aipw": "AIPW: cross-fitted regressions of treatment and outcome, doubly robust",
    "meta_analysis": "meta-analysis of the sites' own doubly robust estimates",
}
ESTIMAND = (
    "The average treatment effect: by how much the outcome would differ on average if everybody in these "
    "tables were treated, from if nobody were."
)
COMMON = (
    "Nothing unmeasured influences both treatment and outcome, once the covariates are known.",
    "Everybody could have been treated and could have gone without, whatever their covariates.",
    "One person's treatment does not change another's outcome, and there is one version of treatment.",
    "Columns of one name measure the same thing at every site.",
)
OWN = {
    "fedci": ("Both outcomes of a person depend smoothly on the covariates, alike at all sites.",),
    "causal_rff": (
        "Where confounding is taken as latent, the covariates are proxies of it, and independent of each "
        "other, of treatment and of outcome given it.",
    ),
    "causal_fi": ("Whether a value is missing depends only on what was seen of the person.",),
    "aipw": ("One of the two regressions, of treatment or of outcome, is right.",),
    "meta_analysis": ("At every site, one of the two regressions is right.",),
}
LIMITS = (
    "An effect from observational data is only as good as the assumptions above. No number here tests the "
    "first of them.",
    "Intervals hold what the model does not know. They do not hold that the model may be wrong, nor how the "
    "sites were chosen.",
    "What left the sites are sums and draws, not rows. Sums of few people can still say something of them: "
    "each site's own limits decide what it answers.",
)


def sentence(content: dict[str, Any]) -> str:
    """The answer with its interval, from what result.json holds."""
    people, sites = content["people"], content["site_count"]
    over = f"over {people:,} people at {sites} site{'s' if sites != 1 else ''}."
    lower, upper = content["ate_interval"]
    if None in (content["ate"], lower, upper):
        what = f"how much '{content['treatment']}' changes '{content['outcome']}'"
        return f"The fit gave no finite number for {what}, {over}"
    unit = f" {content['outcome_unit']}" if content["outcome_unit"] else ""
    return (
        f"'{content['treatment']}' changes '{content['outcome']}' by {content['ate']:+.3g}{unit} on average "
        f"({content['interval_probability']:.0%} interval {lower:.3g} to {upper:.3g}), {over}"
    )


def assumptions(method: str) -> list[str]:
    """What must be true for the number to be an effect."""
    return [*COMMON, *OWN.get(method, ())]


def citation(study: str, version: str, digest: str) -> str:
    """How to name this result."""
    return f"unpooled {version}, study '{study}', question {digest[:12]}."
