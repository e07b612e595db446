"""One short family of errors: what was expected, what was found and where, what to do."""

from __future__ import annotations

from collections.abc import Iterable
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
        super().__init__(f"{expected}\n  found: {found}\n  try:   {remedy}")


class StudyError(UnpooledError):
    """The study (file or object) does not say what it must."""

    exit_code = 2


class DataError(UnpooledError):
    """A site's table cannot answer this study."""

    exit_code = 3


class SchemaError(DataError):
    """The sites do not agree on what a column is."""


class LimitRefusal(UnpooledError):
    """A site refuses to answer because the answer could disclose people."""

    exit_code = 4


class MessageError(UnpooledError):
    """A message that is not in the protocol's vocabulary, or does not decode."""

    exit_code = 5


class FitError(UnpooledError):
    """The numbers went wrong while fitting."""

    exit_code = 6


class ResultsError(UnpooledError):
    """A results or model folder that is in the way, missing or unreadable."""

    exit_code = 7


class ApprovalError(UnpooledError):
    """A site is asked what its custodian has not approved."""

    exit_code = 8


class EngineError(UnpooledError):
    """The way to the sites is closed."""

    exit_code = 9


class SiteLost(EngineError):
    """A site that was to answer does not, or not as it should."""

    def __init__(self, site: str, reason: str) -> None:
        self.site, self.reason = site, reason
        super().__init__(
            "every site of the study must answer",
            found=f"site '{site}': {reason}",
            remedy="bring it back and go on with --resume; a new study may say min_sites, to rest on fewer",
        )


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint naming the known word closest to a misspelt one.

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
