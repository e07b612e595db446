"""What a fit of CausalFI is expected to ask: from its first look at the chains to the most sweeps."""

from __future__ import annotations

from unpooled.maths.operations import Operations
from unpooled.methods.causal_fi import importance
from unpooled.methods.causal_fi.chain import Chain, Sizes, begin
from unpooled.methods.causal_fi.columns import Layout
from unpooled.methods.causal_fi.fit import STARTED, STARTING, TRIED
from unpooled.methods.causal_fi.posterior_sample import SETTLING, Length
from unpooled.methods.causal_fi.sampler import LIKELIHOOD, SENT
from unpooled.methods.causal_fi.structures import STRUCTURES
from unpooled.methods.expected import Course, Expected, keys, numbers, whole
from unpooled.models.effects import BOOTSTRAP
from unpooled.models.outcome_family import ClosedFamily, Gaussian
from unpooled.protocol.records import Arrays, Parameters

UPDATED, STEPS = 60.0, 5500
"""What an update of a chain takes: factorisations of the size of the outcome's coefficients (a guess), and
the steps of its program (decision 24), most of them of random numbers."""


class Asked:
    """The shapes of the parameters of a chain's questions."""

    def __init__(self, sizes: Sizes, layout: Layout, family: ClosedFamily, *, shifted: bool) -> None:
        self.chain: Chain = begin(sizes._replace(sites=1), layout, family)
        self.size = sizes.all
        self.shift = {"shift": numbers(2, sizes.incomplete)} if shifted else {}
        normal = isinstance(family, Gaussian) and len(layout.numbers) and not shifted
        self.column = {"column": whole()} if normal else {}
        self.sites = sizes.sites

    def draw(self, structure: str) -> Arrays:
        """What all sites receive of a chain's state."""
        coefficients = numbers(2, len(STRUCTURES[structure].groups(self.size)))
        return {name: getattr(self.chain, name) for name in SENT} | {"outcome": coefficients}

    def augmentation(self, structure: str, thetas: int, rounds: int) -> Expected:
        draw = self.draw(structure)
        fixed = {"draw": draw, "mode": draw["outcome"], "fold": whole(), "key": keys(), **self.column}
        own = {"offset": numbers(2), "mode_offset": numbers(2), **self.shift}
        size = len(STRUCTURES[structure].groups(self.size))
        solve = Operations(UPDATED * (size**3 + self.sites * size**2), steps=STEPS)
        stage = f"augmentation/{structure}"
        return Expected(stage, thetas, Parameters({}, fixed, own), rounds, solve=solve)

    def effects(self, structure: str, thetas: int, rounds: int) -> Expected:
        fixed = {**self.draw(structure), "key": keys(), BOOTSTRAP: keys()}
        own = {"offset": numbers(2), **self.shift}
        return Expected(f"effect/{structure}", thetas, Parameters({}, fixed, own), rounds)

    def likelihood(self, thetas: int, rounds: int) -> Expected:
        draw = self.draw("linear")
        fixed = {name: draw[name] for name in ("confounders", "treatment", "outcome", "noise")}
        return Expected(LIKELIHOOD, thetas, Parameters({}, fixed, {"offset": numbers(2)}), rounds)


def expected(
    asked: Asked, names: tuple[str, ...], length: Length, *, folds: int, sizes: Sizes, weighted: bool
) -> Course:
    """The shortest and the longest course.

    Chains go on until they have mixed, which the data decide about. Which structure is chosen does so too:
    the shortest course has the first, whose chains mix best, the longest the second, if there are several.
    """
    start = [asked.augmentation("linear", STARTED * STARTING, STARTED)]
    for name in names:
        trials = TRIED * max(folds, 1) * len(STRUCTURES[name].starts)
        start.append(asked.augmentation(name, trials, TRIED))

    def sampled(structure: str, sweeps: int) -> Course:
        rounds = SETTLING + sweeps + 1
        questions = (
            asked.augmentation(structure, length.chains * rounds, rounds),
            asked.effects(structure, length.chains * sweeps, sweeps),
        )
        return Course(STARTED + TRIED + rounds, (*start, *questions))

    longest = sampled(names[min(1, len(names) - 1)], max(length.sweeps, length.most_sweeps))
    if weighted:
        points = importance.most_points(sizes)
        states = importance.CHAINS * importance.STATES
        more = (asked.likelihood(points, importance.ROUNDS), asked.effects("linear", states, 1))
        longest = Course(longest.rounds + importance.ROUNDS + 1, (*longest.questions, *more))
    shortest = sampled(names[0], length.sweeps)
    return Course(shortest.rounds, shortest.questions, longest)
