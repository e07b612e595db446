"""The paper's simulated data: site tables whose true effects are known."""

from typing import Any

from unpooled.data.simulation import causal_fi, causal_rff, fedci
from unpooled.data.simulation.output import write
from unpooled.data.simulation.simulation import Simulation, varying
from unpooled.errors import StudyError, nearest

__all__ = ["NAMES", "Simulation", "simulate", "varying", "write"]

_FAMILIES = {name: family for family in (fedci, causal_rff, causal_fi) for name in family.OPTIONS}
NAMES = tuple(_FAMILIES)


def simulate(
    name: str, *, sites: int, rows: int, seed: int, test_rows: int = 0, **options: Any
) -> Simulation:
    """Tables of ``rows`` people per site, whose true effects are known; ``options`` are those of the name.

    >>> data = simulate("causalrff-same", sites=2, rows=50, seed=7)
    >>> {site: frame.shape for site, frame in data.frames.items()}
    {'site1': (50, 32), 'site2': (50, 32)}
    """
    if name not in _FAMILIES:
        raise StudyError(
            "the simulation must be one of the paper's", found=f"'{name}'", remedy=nearest(name, NAMES)
        )
    family = _FAMILIES[name]
    for word in options:
        if word not in family.OPTIONS[name]:
            raise StudyError(
                f"'{name}' must know its options",
                found=f"'{word}'",
                remedy=nearest(word, family.OPTIONS[name]),
            )
    return family.simulate(name, sites=sites, rows=rows, seed=seed, test_rows=test_rows, **options)
