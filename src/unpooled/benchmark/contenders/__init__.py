"""Who takes part. A contender joins by a line here and a function in a module of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from unpooled.benchmark.cases import Case
from unpooled.benchmark.scores import Estimate
from unpooled.errors import StudyError, nearest

Cost = dict[str, float]
Estimator = Callable[[Case, str, int], tuple[Estimate, Cost]]
"""(case, arrangement, seed) → what is said of the test people, and its cost: seconds, rounds, megabytes."""

PEER = ("local", "bagged", "combined")
"""Each site alone; the mean of the sites' models; the tables stacked, which is what nobody may do."""
ARRANGEMENTS = ("federated", *PEER)


@dataclass(frozen=True)
class Contender:
    """Where it is written, how the sites' tables may be arranged for it, and what it needs installed."""

    name: str
    module: str
    arrangements: tuple[str, ...]
    package: str | None = None

    def missing(self) -> str | None:
        """Why it cannot take part here, if it cannot."""
        if self.package is None or find_spec(self.package) is not None:
            return None
        return f"the package '{self.package}' is not installed (pip install {self.package})"

    def estimator(self) -> Estimator:
        return import_module(f"unpooled.benchmark.contenders.{self.module}").ESTIMATORS[self.name]


_ALL = (
    Contender("fedci", "ours", ("federated", "combined", "local")),
    Contender("fedci-no-shifts", "ours", ("federated",)),
    Contender("causal_rff", "ours", ("federated", "combined", "local")),
    Contender("causal_rff-observed", "ours", ("federated",)),
    Contender("causal_rff-latent", "ours", ("federated",)),
    Contender("zero", "simple", ("combined",)),
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
)
CONTENDERS = {contender.name: contender for contender in _ALL}


def find(name: str) -> Contender:
    """A contender by its name."""
    if name not in CONTENDERS:
        raise StudyError("the contender must be known", found=f"'{name}'", remedy=nearest(name, CONTENDERS))
    return CONTENDERS[name]
