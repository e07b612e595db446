"""The package's errors. Each states what was expected, what was found and where, and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class UnpooledError(Exception):
    """Base class of all errors that this package raises on purpose.

    The message states what was expected, what was found and what to do. It never contains a value of a row.

    Parameters
    ----------
    expected : str
        What was expected.
    found : str
        What was found, and where.
    remedy : str
        What to do.

    Attributes
    ----------
    exit_code : int
        The exit code of the command line for this kind of error.
    problems : tuple of UnpooledError
        The problems that were found together, each as an error of its own; by default this error alone.

    Examples
    --------
    >>> print(UnpooledError("a study has a seed", found="no seed", remedy="give seed=0"))
    a study has a seed
      found: no seed
      try:   give seed=0
    """

    exit_code = 2

    def __init__(self, expected: str, *, found: str, remedy: str) -> None:
        self.expected, self.found, self.remedy = expected, found, remedy
        self.problems: tuple[UnpooledError, ...] = (self,)
        super().__init__(f"{expected}\n  found: {found}\n  try:   {remedy}")


class StudyError(UnpooledError):
    """The study file or object is invalid."""

    exit_code = 2


class DataError(UnpooledError):
    """A site's table does not fit the study."""

    exit_code = 3
    absent = ""
    """The name of the column that the table lacks, or has more than once."""


class SchemaError(DataError):
    """The sites disagree about a column's type or levels."""


class LimitRefusal(UnpooledError):
    """A site refuses to answer because the answer could disclose information about individuals."""

    exit_code = 4


class MessageError(UnpooledError):
    """A message is not part of the protocol or cannot be decoded."""

    exit_code = 5


class FitError(UnpooledError):
    """Fitting failed numerically."""

    exit_code = 6


class ResultsError(UnpooledError):
    """A results or model folder already exists, is missing, or cannot be read or written."""

    exit_code = 7


class ApprovalError(UnpooledError):
    """A site was asked a question that its custodian has not approved."""

    exit_code = 8


class EngineError(UnpooledError):
    """The coordinator cannot reach the sites."""

    exit_code = 9


class SiteLost(EngineError):
    """A site of the study does not reply, or replies incorrectly."""

    def __init__(self, site: str, reason: str) -> None:
        self.site, self.reason = site, reason
        super().__init__(
            "every site of the study must answer",
            found=f"site '{site}': {reason}",
            remedy="reconnect the site and continue with --resume, or set min_sites in a new study",
        )


class Problems:
    """Collects the errors of independent steps, so that a user is told of all of them at once.

    >>> problems = Problems()
    >>> for name in ("age", "sex"):
    ...     with problems.collected():
    ...         raise DataError(f"a column '{name}'", found="none", remedy="add it")
    >>> problems.raise_all()
    Traceback (most recent call last):
    unpooled.errors.DataError: a study without problems
      found: 2 problems
        - a column 'age'; found: none; try: add it
        - a column 'sex'; found: none; try: add it
      try:   correct all of them
    """

    def __init__(self) -> None:
        self.found: list[UnpooledError] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep an error about the study or a table, unless it is known already, and go on."""
        try:
            yield
        except (StudyError, DataError, LimitRefusal) as error:
            known = {str(one) for one in self.found}
            self.found += [one for one in error.problems if str(one) not in known]

    def raise_all(self) -> None:
        """Raise what was found: a single error as it is, several as one of the kind of the first."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            lines = [f"    - {one.expected}; found: {one.found}; try: {one.remedy}" for one in self.found]
            error = type(self.found[0])(
                "a study without problems",
                found="\n".join([f"{len(lines)} problems", *lines]),
                remedy="correct all of them",
            )
            error.problems = tuple(self.found)
            raise error


class FailedCheckWarning(UserWarning):
    """A check of a fit failed, so that its numbers should not be relied on without a closer look."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the known word closest to a misspelt one.

    >>> nearest("fedcy", ["fedci", "causal_rff"])
    "did you mean 'fedci'?"
    >>> nearest("zzz", ["fedci", "causal_rff"])
    "known: 'causal_rff', 'fedci'"
    """
    known = sorted(known)
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return "known: " + ", ".join(f"'{name}'" for name in known)
