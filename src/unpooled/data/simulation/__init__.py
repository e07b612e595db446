"""The simulated data of the paper: site tables with known true effects."""

from unpooled.data.simulation import causal_fi, causal_rff, fedci
from unpooled.data.simulation.simulation import Simulation, varying, write
from unpooled.errors import StudyError, nearest

__all__ = ["NAMES", "Simulation", "simulate", "varying", "write"]

_FAMILIES = {name: family for family in (fedci, causal_rff, causal_fi) for name in family.OPTIONS}
NAMES = tuple(_FAMILIES)


def simulate(
    name: str, *, sites: int, rows: int, seed: int, test_rows: int = 0, **options: object
) -> Simulation:
    """Simulate the tables of a study with known true effects.

    Parameters
    ----------
    name : str
        The simulation, one of `NAMES`.
    sites, rows, test_rows : int
        The number of sites, and of training and test people per site.
    seed : int
        The seed of the people.
    **options
        Options of the simulation, such as ``coefficient_seed``; see the module of the simulation.

    Examples
    --------
    >>> data = simulate("causalrff-same", sites=2, rows=50, seed=7)
    >>> {site: frame.shape for site, frame in data.frames.items()}
    {'site1': (50, 32), 'site2': (50, 32)}
    """
    if name not in _FAMILIES:
        raise StudyError(
            "the name of the simulation must be known", found=f"'{name}'", remedy=nearest(name, NAMES)
        )
    family = _FAMILIES[name]
    for word in options:
        if word not in family.OPTIONS[name]:
            raise StudyError(
                f"every option of '{name}' must be known",
                found=f"'{word}'",
                remedy=nearest(word, family.OPTIONS[name]),
            )
    return family.simulate(name, sites=sites, rows=rows, seed=seed, test_rows=test_rows, **options)
