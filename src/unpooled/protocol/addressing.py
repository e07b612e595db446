"""A question as one site gets it. What is said to `each` site, a site hears its own part of.

Questions mirror replies: a reply's `each` is kept by site, a question's `each` goes out by site. At the
coordinator it is [batch, site, …], beside the rows [batch, …]; no site is told another's parameters.
"""

from __future__ import annotations

from dataclasses import replace

import jax

from unpooled.protocol.messages import Ask, Message, PullBack, Together, Tree


def to_site(question: Message, site: int) -> Message:
    """The question for the site at this place; the same object where all are asked alike."""
    match question:
        case Ask(_, parameters) if "each" in parameters:
            return replace(question, parameters=_own(parameters, site))
        case PullBack(_, parameters, cotangent):
            return replace(question, parameters=_own(parameters, site), cotangent=_own(cotangent, site))
        case Together(questions):
            parts = tuple(to_site(part, site) for part in questions)
            alike = all(part is asked for part, asked in zip(parts, questions, strict=True))
            return question if alike else Together(parts)
    return question


def at_site(draws: Tree, site: int) -> Tree:
    """Draws ``{"fixed": [K, …], "each": [K, site, …]}`` as one site knows them, in one flat tree."""
    return {**draws["fixed"], **_own(draws, site)["each"]}


def _own(tree: Tree, site: int) -> Tree:
    """The tree with only this site's part of what is said to each."""
    if "each" not in tree:
        return tree
    return {**tree, "each": jax.tree.map(lambda leaf: leaf[:, site], tree["each"])}
