"""Sites where everybody or nobody was treated: which methods refuse them, and what their results rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from unpooled.errors import DataError
from unpooled.methods import method as methods
from unpooled.protocol.records import Check, Scaling
from unpooled.study import Description, Schema, Study

PEOPLE = {"treated": "treated people", "control": "controls"}


def one_arm_sites(descriptions: Mapping[str, Description], schema: Schema) -> dict[str, str]:
    """The sites with people in one arm only, and which: "treated" or "control"."""
    found: dict[str, str] = {}
    for site, described in descriptions.items():
        present = [level for level, people in described.arms.items() if people]
        if len(present) == 1:
            found[site] = "treated" if present[0] == schema.treated else "control"
    return found


def refuse_one_arm(study: Study, one_arm: Mapping[str, str]) -> None:
    """Refuse sites with one arm if the method cannot use them."""
    settings = methods.settings_of(methods.find(study.method.name), study.method.settings)
    if one_arm and settings.needs_both_arms:
        raise DataError(
            f"with these settings, the method '{study.method.name}' needs people in both arms at every site",
            found="; ".join(_who(one_arm)),
            remedy=settings.needs_both_arms,
        )


def one_arm_words(study: Study, scaling: Scaling) -> tuple[str, ...]:
    """What is assumed about sites with one arm, in sentences; nothing if every site has both."""
    one_arm = scaling.known.one_arm
    if not one_arm:
        return ()
    differ = methods.settings_of(methods.find(study.method.name), study.method.settings).differs_by_site
    lacking = " and ".join(
        f"the outcomes of {'controls' if arm == 'treated' else 'treated people'} at {_named(sites)}"
        for arm, sites in _by_arm(one_arm).items()
    )
    assumed = (
        "given the covariates, sites differ no more in an arm that they lack than the model finds sites to "
        "differ. A difference that all sites of one arm share cannot be told apart from the effect"
        if differ
        else "given the covariates, outcomes do not depend on the site. The intervals leave no room for "
        "differences between sites"
    )
    return (f"Sites with one arm: {lacking} are predicted from other sites. This assumes that, {assumed}.",)


def one_arm_checks(study: Study, scaling: Scaling) -> tuple[Check, ...]:
    """Whether any site compares treated people with controls of its own; nothing if all sites do."""
    one_arm = scaling.known.one_arm
    if not one_arm:
        return ()
    words = (
        f"Number of sites with people in both arms ({'; '.join(_who(one_arm))}). From the threshold on, some "
        "sites compare treated people with controls of their own. Below it no site does, and any difference "
        "between the sites of the two arms that the covariates do not explain becomes part of the estimated "
        "effect. "
    )
    both = float(scaling.sites - len(one_arm))
    return (
        Check.at_least(
            "both arms at the same site", both, 1.0, words + " ".join(one_arm_words(study, scaling))
        ),
    )


def _who(one_arm: Mapping[str, str]) -> Iterator[str]:
    """Which sites have only treated people, and which only controls."""
    for arm, sites in _by_arm(one_arm).items():
        yield f"only {PEOPLE[arm]} at {_named(sites)}"


def _by_arm(one_arm: Mapping[str, str]) -> dict[str, list[str]]:
    each = {arm: [site for site, found in one_arm.items() if found == arm] for arm in PEOPLE}
    return {arm: sites for arm, sites in each.items() if sites}


def _named(sites: Iterable[str]) -> str:
    """Sites by name; the first few if they are many.

    >>> _named(["a", "b"]), _named("abcdefg")
    ("'a' and 'b'", "'a', 'b', 'c', 'd', 'e' and 2 more sites")
    """
    names = [f"'{site}'" for site in sites]
    shown, more = names[:5], len(names) - 5
    parts = [*shown, f"{more} more site{'s' if more > 1 else ''}"] if more > 0 else shown
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
