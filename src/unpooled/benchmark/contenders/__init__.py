"""Who takes part. A contender joins by a line here and a function in a module of its own."""

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
Estimator = Callable[[Case, str, int], tuple[Estimate, Cost]]
"""(case, arrangement, seed) → what is said of the test people, and its cost: seconds, rounds, megabytes."""

PEER = ("local", "bagged", "combined")
"""Each site alone; the mean of the sites' models; the tables stacked, which is what nobody may do."""
ARRANGEMENTS = ("federated", *PEER)
COMPLETE, INCOMPLETE = ("complete",), ("incomplete",)
"""Which tables: those without holes, those with them."""


@dataclass(frozen=True)
class Contender:
    """Where it is written, how the sites' tables may be arranged for it, and what it needs installed.

    It takes tables without holes, tables with holes, or both. `estimator_class` is one of ours, which this
    version may not have.
    """

    name: str
    module: str
    arrangements: tuple[str, ...]
    package: str | None = None
    takes: tuple[str, ...] = COMPLETE
    estimator_class: str | None = None

    def missing(self) -> str | None:
        """Why it cannot take part here, if it cannot."""
        if self.package is not None and find_spec(self.package) is None:
            return f"the package '{self.package}' is not installed (pip install {self.package})"
        if self.estimator_class is not None and self.estimator_class not in dir(unpooled):
            return f"this version has no unpooled.{self.estimator_class}"
        return None

    def require_taken(self, case: Case) -> None:
        """Who knows nothing of holes is not shown any: without those columns it were another question."""
        kind = "incomplete" if case.incomplete else "complete"
        if kind not in self.takes:
            raise StudyError(
                f"the contender '{self.name}' must be given {' or '.join(self.takes)} tables",
                found=f"{'covariates with' if case.incomplete else 'no'} missing values",
                remedy=f"choose among: {', '.join(taking(kind))}",
            )

    def estimator(self) -> Estimator:
        return import_module(f"unpooled.benchmark.contenders.{self.module}").ESTIMATORS[self.name]


_ALL = (
    Contender("fedci", "ours", ("federated", "combined", "local")),
    Contender("fedci-no-shifts", "ours", ("federated",)),
    Contender("causal_rff", "ours", ("federated", "combined", "local")),
    Contender("causal_rff-observed", "ours", ("federated",)),
    Contender("causal_rff-latent", "ours", ("federated",)),
    Contender("causal_fi", "ours", ("federated", "combined"), takes=INCOMPLETE, estimator_class="CausalFI"),
    Contender("zero", "simple", ("combined",), takes=COMPLETE + INCOMPLETE),
    Contender("constant", "simple", ("combined",)),
    Contender("ridge", "simple", PEER),
    Contender("ridge-indicators", "simple", ("combined",)),
    Contender("gp", "simple", PEER),
    Contender("x-learner", "forests", PEER, "econml"),
    Contender("dr-learner", "forests", PEER, "econml"),
    Contender("linear-dml", "forests", PEER, "econml"),
    Contender("causal-forest", "forests", PEER, "econml"),
    Contender("x-learner-causalml", "uplift", PEER, "causalml"),
    Contender("r-learner-causalml", "uplift", PEER, "causalml"),
    Contender("bart", "trees", PEER, "stochtree"),
    Contender("bcf", "trees", PEER, "stochtree"),
    Contender("tarnet", "networks", PEER),
    Contender("cfr-mmd", "networks", PEER),
    Contender("cfr-wasserstein", "networks", PEER),
    Contender("tarnet-without-help", "networks", ("combined",)),
    Contender("cfr-wasserstein-without-help", "networks", ("combined",)),
    Contender("cevae", "networks", PEER),
    Contender("complete-case", "imputed", ("combined",), takes=INCOMPLETE),
    Contender("mean", "imputed", ("combined",), takes=INCOMPLETE),
    Contender("iterative", "imputed", ("combined",), takes=INCOMPLETE),
    Contender("iterative-outcome", "imputed", ("combined",), takes=INCOMPLETE),
    Contender("iterative-constant", "imputed", ("combined",), takes=INCOMPLETE),
    Contender("iterative-fedci", "imputed", ("combined",), takes=INCOMPLETE),
    Contender("ipw", "averages", ("combined",), takes=INCOMPLETE),
    Contender("dr", "averages", ("combined",), takes=INCOMPLETE),
)
CONTENDERS = {contender.name: contender for contender in _ALL}


def taking(kind: str) -> tuple[str, ...]:
    """Who takes tables that are "complete", or "incomplete"."""
    return tuple(name for name, contender in CONTENDERS.items() if kind in contender.takes)


def find(name: str) -> Contender:
    """A contender by its name."""
    if name not in CONTENDERS:
        raise StudyError("the contender must be known", found=f"'{name}'", remedy=nearest(name, CONTENDERS))
    return CONTENDERS[name]
