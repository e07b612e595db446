"""The contenders. To add one, write a function in a module of this folder and list it here.

One of our own estimators needs only the line here, with the name of its class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

import unpooled
from unpooled.benchmark.cases import Case
from unpooled.benchmark.scores import Estimate
from unpooled.errors import StudyError, nearest

Cost = dict[str, float]
EstimateFunction = Callable[[Case, str, int], tuple[Estimate, Cost]]
"""(case, arrangement, seed) → estimates for the test people, and their cost in seconds, rounds, megabytes."""

PEER = ("local", "bagged", "combined")
"""Each site alone; the mean of the sites' models; and stacked tables, as if pooling were allowed."""
ARRANGEMENTS = ("federated", *PEER)
OURS = ("federated", "combined", "local")
COMPLETE, INCOMPLETE = ("complete",), ("incomplete",)
"""The kinds of tables: without and with missing values."""


@dataclass(frozen=True)
class Contender:
    """A method that takes part: its module, the arrangements of the tables it can use, and what it requires.

    `takes` lists the kinds of tables it can use. `estimator_class` names one of our own estimators, which
    this version may not have; it takes part with its default settings. One that `combines` others is not a
    measure for them: `compare --view data-sets` compares everybody with the best of the rest.
    """

    name: str
    module: str
    arrangements: tuple[str, ...]
    package: str | None = None
    takes: tuple[str, ...] = COMPLETE
    estimator_class: str | None = None
    combines: bool = False

    def missing(self) -> str | None:
        """Why the contender is unavailable here, or None."""
        if self.package is not None and find_spec(self.package) is None:
            return f"the package '{self.package}' is not installed (pip install {self.package})"
        if self.estimator_class is not None and self.estimator_class not in dir(unpooled):
            return f"this version has no unpooled.{self.estimator_class}"
        return None

    def require_taken(self, case: Case) -> None:
        """Refuse a case of the wrong kind: dropping the incomplete columns would change the question."""
        kind = "incomplete" if case.incomplete else "complete"
        if kind not in self.takes:
            raise StudyError(
                f"the contender '{self.name}' must be given {' or '.join(self.takes)} tables",
                found=f"{'covariates with' if case.incomplete else 'no'} missing values",
                remedy=f"choose among: {', '.join(taking(kind))}",
            )

    def estimator(self) -> EstimateFunction:
        module = import_module(f"unpooled.benchmark.contenders.{self.module}")
        if self.estimator_class is not None:
            return module.plain(self.estimator_class)
        return module.ESTIMATORS[self.name]


_IMPUTED = {
    "bart": "stochtree",
    "x-learner": "econml",
    "r-learner": None,
    "orthogonal-forest": "econml",
    "causal-forest": "econml",
    "tarnet": None,
    "cfr-mmd": None,
    "cfr-wasserstein": None,
    "cevae": None,
}
"""Peers that also take part after an imputation, and their packages."""
_AFTER_IMPUTATION = tuple(
    contender
    for imputer in ("iterative", "ppca")
    for contender in (
        # Federated: every site imputes by itself.
        Contender(f"{imputer}-fedci", "imputation", ("combined", "federated"), takes=INCOMPLETE),
        *(
            Contender(f"{imputer}-{name}", "imputation", ("combined", "bagged"), package, takes=INCOMPLETE)
            for name, package in _IMPUTED.items()
        ),
    )
)
_ALL = (
    Contender("fedci", "ours", OURS, estimator_class="FedCI"),
    Contender("fedci-no-shifts", "ours", ("federated",)),
    Contender("causal_rff", "ours", OURS, estimator_class="CausalRFF"),
    Contender("causal_rff-observed", "ours", ("federated",)),
    Contender("causal_rff-latent", "ours", ("federated",)),
    Contender("aipw", "ours", OURS, estimator_class="AIPW"),
    Contender("causal_forest", "ours", OURS, estimator_class="CausalForest"),
    Contender("boosted_arms", "ours", OURS, estimator_class="BoostedArms"),
    Contender("super_learner", "ours", OURS, estimator_class="SuperLearner", combines=True),
    Contender("causal_fi", "ours", ("federated", "combined"), takes=INCOMPLETE, estimator_class="CausalFI"),
    Contender("zero", "simple", ("combined",), takes=COMPLETE + INCOMPLETE),
    Contender("constant", "simple", ("combined",)),
    Contender("ridge", "simple", PEER),
    Contender("ridge-indicators", "simple", ("combined",)),
    Contender("gp", "simple", PEER),
    Contender("x-learner", "packages", PEER, "econml"),
    Contender("dr-learner", "packages", PEER, "econml"),
    Contender("linear-dml", "packages", PEER, "econml"),
    Contender("causal-forest", "packages", PEER, "econml"),
    Contender("orthogonal-forest", "packages", PEER, "econml"),
    Contender("r-learner", "r_learner", PEER),
    Contender("bart", "packages", PEER, "stochtree"),
    Contender("bcf", "packages", PEER, "stochtree"),
    Contender("boosted-t-learner", "boosting", PEER),
    Contender("boosted-r-learner", "boosting", PEER),
    Contender("tarnet", "networks", PEER),
    Contender("cfr-mmd", "networks", PEER),
    Contender("cfr-wasserstein", "networks", PEER),
    Contender("tarnet-without-help", "networks", ("combined",)),
    Contender("cfr-wasserstein-without-help", "networks", ("combined",)),
    Contender("cevae", "networks", PEER),
    Contender("complete-case", "imputation", ("combined",), takes=INCOMPLETE),
    Contender("mean", "imputation", ("combined",), takes=INCOMPLETE),
    Contender("iterative", "imputation", ("combined",), takes=INCOMPLETE),
    Contender("iterative-outcome", "imputation", ("combined",), takes=INCOMPLETE),
    Contender("iterative-constant", "imputation", ("combined",), takes=INCOMPLETE),
    Contender("ppca", "imputation", ("combined",), takes=INCOMPLETE),
    Contender("pca", "imputation", ("combined",), takes=INCOMPLETE),
    *_AFTER_IMPUTATION,
    Contender("ipw", "averages", ("combined",), takes=INCOMPLETE),
    Contender("dr", "averages", ("combined",), takes=INCOMPLETE),
    Contender("pca-ipw", "averages", ("combined",), takes=INCOMPLETE),
    Contender("pca-dr", "averages", ("combined",), takes=INCOMPLETE),
    Contender("ipw-not-imputed", "averages", ("combined",), takes=INCOMPLETE),
    Contender("dr-not-imputed", "averages", ("combined",), takes=INCOMPLETE),
)
CONTENDERS = {contender.name: contender for contender in _ALL}


def taking(kind: str) -> tuple[str, ...]:
    """The contenders that take "complete" or "incomplete" tables."""
    return tuple(name for name, contender in CONTENDERS.items() if kind in contender.takes)


def find(name: str) -> Contender:
    """A contender by its name."""
    if name not in CONTENDERS:
        raise StudyError("the contender must be known", found=f"'{name}'", remedy=nearest(name, CONTENDERS))
    return CONTENDERS[name]
