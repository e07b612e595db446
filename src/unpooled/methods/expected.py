"""What a fit is expected to ask of the sites, from which the cost of a study is told before it runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unpooled.maths.operations import Operations
from unpooled.protocol.records import Parameters


@dataclass(frozen=True)
class Expected:
    """The questions about one stage that a fit is expected to ask."""

    stage: str
    thetas: int
    """Number of θ in all questions together."""
    parameters: Parameters
    """Parameters in the shapes of one θ, without a batch axis, as a site receives them."""
    asked: int = 1
    """Number of questions, each in a round of its own."""
    gradient: bool = False
    """Whether the question is `Vjp`, not `Ask`."""
    share: float = 1.0
    """Share of the sites that have to compute something; the others reply with zeros."""
    solve: Operations = Operations()
    """Work at the coordinator for every θ."""


@dataclass(frozen=True)
class Course:
    """The expected course of a fit. Questions of several stages may be asked in the same rounds."""

    rounds: int
    questions: tuple[Expected, ...]
    longest: Course | None = None
    """The longest course, if the fit goes on until a criterion is met which data decide about."""

    def beside(self, other: Course) -> Course:
        """Both courses side by side: the longer one determines the number of rounds."""
        longest = None if self.longest is None else self.longest.beside(other)
        return Course(max(self.rounds, other.rounds), (*self.questions, *other.questions), longest)

    def prefixed(self, prefix: str) -> Course:
        """The same course, with a prefix to the names of the stages."""
        renamed = tuple(replace(one, stage=f"{prefix}{one.stage}") for one in self.questions)
        longest = None if self.longest is None else self.longest.prefixed(prefix)
        return replace(self, questions=renamed, longest=longest)


def evaluated(
    stage: str, thetas: int, parameters: Parameters, asked: int, solve: Operations
) -> tuple[Expected, Expected]:
    """Evaluations of an objective: a round for its statistics, and one for their derivative."""
    value = Expected(stage, thetas, parameters, asked)
    return value, replace(value, gradient=True, solve=solve)


def numbers(*shape: int) -> np.ndarray:
    """Parameters that are numbers."""
    return np.zeros(shape)


def whole(*shape: int) -> np.ndarray:
    """Parameters that are whole numbers, such as a fold."""
    return np.zeros(shape, int)


def keys(*shape: int) -> np.ndarray:
    """Keys of random numbers."""
    return np.zeros((*shape, 2), np.uint32)
