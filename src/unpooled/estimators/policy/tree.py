"""Rules that ask everybody at most two questions about covariates, found from sums over cells.

A question is whether a covariate is at most a threshold. The thresholds follow from the means and sds on
which the sites have agreed. For answers b(x) ∈ {0, 1}ᵐ a site tells Σωb bᵀ and Σωg b bᵀ, where g is the
benefit of treating a person: from these follows the benefit in every cell of every tree of depth two. Of the
best trees of depth zero, one and two, the simplest is taken whose benefit is within one standard error of
that of the last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from unpooled.protocol.records import Scaling
from unpooled.study import ColumnSchema, Schema

QUANTILES = ndtri(np.arange(0.1, 0.95, 0.1))
"""Where a numeric covariate may be divided, in sds about its mean: the deciles of a normal distribution."""
SMALLEST = 0.05
"""Least share of people in each cell of a rule."""
DEPTH = 2
"""Most questions that a person is asked."""
ROUNDING = 1e-9
"""A tree with another question must be better by this share of all benefits and harms."""


class Question(NamedTuple):
    """Whether a feature is at most a threshold in standard units, and both answers in words."""

    feature: int
    threshold: float
    yes: str
    no: str


class Cells(NamedTuple):
    """Σωb bᵀ and Σωg b bᵀ of one site or of all; the first answer is yes for everybody."""

    weight: np.ndarray
    benefit: np.ndarray
    size: float
    """Σω|g|."""


class Rule(NamedTuple):
    """A tree: a first question, another after each answer, and who is treated by both answers (yes, no)."""

    first: int
    after: tuple[int, int]
    treats: tuple[tuple[bool, bool], tuple[bool, bool]]

    def of(self, answers: np.ndarray) -> np.ndarray:
        """Who is treated, from answers [n, m]."""
        left, right = (
            np.where(answers[:, question], *treats)
            for question, treats in zip(self.after, self.treats, strict=True)
        )
        return np.where(answers[:, self.first], left, right).astype(bool)

    def words(self, questions: list[Question]) -> str:
        """Who is treated, in words."""
        cells = []
        for answer, asked, treats in zip((True, False), self.after, self.treats, strict=True):
            side = [(questions[self.first], answer)] if self.first else []
            if self.first == 0 and not answer:
                continue  # nobody is there
            if treats[0] and treats[1]:
                cells.append(side)
            elif treats[0] or treats[1]:
                cells.append([*side, (questions[asked], treats[0])])
        if not cells:
            return "treat nobody"
        return f"treat if {', or '.join(map(_together, cells))}" if all(cells) else "treat everybody"


def _together(answers: list[tuple[Question, bool]]) -> str:
    """Answers in words, without those that follow from another one about the same feature."""
    if len(answers) == 2:
        (one, yes), (other, also) = answers
        if one.feature == other.feature and yes == also:
            lower = one.threshold < other.threshold
            answers = [answers[0] if lower == yes else answers[1]]
    return " and ".join(question.yes if answer else question.no for question, answer in answers)


def questions_of(schema: Schema, scaling: Scaling) -> list[Question]:
    """All questions that a rule may ask, the first of which everybody answers with yes."""
    found, feature = [Question(0, np.inf, "", "")], 0
    for column in schema.covariates:
        for name in column.features:
            mean, sd = float(scaling.mean[feature]), float(scaling.sd[feature])
            if column.kind == "numeric":
                # Thresholds as they are told: with the digits that differ by a small share of an sd.
                points = np.unique(np.round(mean + sd * QUANTILES, 1 - int(np.floor(np.log10(sd)))))
                found += [
                    Question(
                        feature, (point - mean) / sd, f"{name} <= {point:.10g}", f"{name} > {point:.10g}"
                    )
                    for point in points
                ]
            else:
                found.append(Question(feature, (0.5 - mean) / sd, *_answers(name, column)))
            feature += 1
    return found


def _answers(feature: str, column: ColumnSchema) -> tuple[str, str]:
    """Both answers about a 0/1 feature."""
    if column.flags is not None:
        return f"{column.flags} is known", f"{column.flags} is missing"
    if not column.levels:
        return f"{column.name} = 0", f"{column.name} = 1"
    level = feature.removeprefix(f"{column.name}=")
    others = [other for other in column.levels if other != level]
    no = f"{column.name} is {others[0]}" if len(others) == 1 else f"{column.name} is not {level}"
    return no, f"{column.name} is {level}"


def answers(questions: list[Question], covariates: np.ndarray) -> np.ndarray:
    """b(x) of people [n, m]."""
    features = [question.feature for question in questions]
    return covariates[:, features] <= np.array([question.threshold for question in questions])


def cells(answered: np.ndarray, benefit: np.ndarray, weight: np.ndarray) -> Cells:
    """What one site tells of its people."""
    b = answered.astype(float)
    weighted = weight * benefit
    return Cells((b.T * weight) @ b, (b.T * weighted) @ b, float(np.abs(weighted).sum()))


def together(sites: list[Cells]) -> Cells:
    """The sums over sites."""
    weight, benefit, size = zip(*sites, strict=True)
    return Cells(np.sum(weight, axis=0), np.sum(benefit, axis=0), sum(size))


def best_rule(found: Cells, depth: int = DEPTH) -> Rule:
    """The tree of at most this depth with the largest benefit; of equal ones that with fewer questions."""
    least, margin = SMALLEST * found.weight[0, 0], ROUNDING * found.size
    values, questions, treats = [], [], []
    for side in (0, 1):
        yes, no = _divided(found.benefit, side)
        enough = np.minimum(*_divided(found.weight, side)) >= least
        value = np.where(enough, np.maximum(yes, 0.0) + np.maximum(no, 0.0), -np.inf)
        value[:, 0] = np.maximum(yes[:, 0], 0.0) + margin  # no second question
        value[:, 1:] += 0.0 if depth == DEPTH else -np.inf
        questions.append(np.argmax(value, axis=1))
        values.append(np.max(value, axis=1))
        treats.append(np.stack([yes, np.where(np.arange(len(yes)) == 0, yes, no)], axis=-1) > 0.0)
    weight = np.diagonal(found.weight)
    total = np.where(np.minimum(weight, weight[0] - weight) >= least, values[0] + values[1], -np.inf)
    total[0] = values[0][0] + 2.0 * margin  # no first question
    total[1:] += 0.0 if depth else -np.inf
    first = int(np.argmax(total))
    after = int(questions[0][first]), int(questions[1][first])
    left, right = (treated[first, asked].tolist() for treated, asked in zip(treats, after, strict=True))
    return Rule(first, after, (tuple(left), tuple(right)))


def forgone(rules: list[Rule], answered: np.ndarray, benefit: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """What one site tells of rules: how much less benefit each has than the last, and the sum of squares of
    the people's differences, [2, rules]."""
    chosen = np.stack([rule.of(answered) for rule in rules]).astype(float)
    less = (chosen[-1] - chosen) * weight * benefit
    return np.stack([less.sum(axis=1), np.sum(less**2, axis=1)])


def simplest(rules: list[Rule], sites: list[np.ndarray]) -> Rule:
    """The first rule that is within one standard error of the last, from `forgone` of each site."""
    less, squares = np.sum(sites, axis=0)
    return rules[int(np.argmax(less <= np.sqrt(squares)))]


def _divided(sums: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums [first, second] over those who answer the second question with yes and with no, among those who
    answer the first with yes (side 0) or no (side 1)."""
    total = np.diagonal(sums)
    if side == 0:
        return sums, total[:, None] - sums
    yes = total - sums
    return yes, sums[0, 0] - total[:, None] - yes
