"""What a review says the coordinator sees of a site alone is what is not masked in a run."""

from __future__ import annotations

from typing import Any

import jax
import pytest

from contract.cases import CASES
from oracle.world import STUDY, frames
from unpooled.coordinator.run import run_study
from unpooled.diagnostics.seen_by_site import seen_by_site
from unpooled.disclosure.limits import NONE
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.methods.method import with_settings
from unpooled.protocol.key_messages import Masked
from unpooled.protocol.messages import Ask, Question, Replies, Statistics, Together

pytestmark = pytest.mark.slow

ALONE: dict[str, tuple[str, dict[str, Any]]] = {
    "aipw": CASES["aipw"],
    "aipw, no site terms": ("aipw", {"draws": 40, "site_terms": "none"}),
    "causal_rff, observed": CASES["causal_rff, observed"],
    "causal_rff, no site terms": ("causal_rff", {**CASES["causal_rff, observed"][1], "site_terms": "none"}),
    "fedci, no shifts": ("fedci", {**CASES["fedci, one structure"][1], "inter_dependency": False}),
}
NOTHING = {"aipw, no site terms", "causal_rff, no site terms", "fedci, no shifts"}


class Listening(InProcess):
    """Keeps the names of numbers that are seen of single sites."""

    seen: dict[str, set[str]]

    def exchange(self, question: Question) -> Any:
        replies, traffic = super().exchange(question)
        reply = replies["north"]
        found = reply.plain if isinstance(reply, Masked) else reply
        asked = question.questions if isinstance(question, Together) else (question,)
        parts = found.replies if isinstance(found, Replies) else (found,)
        for one, part in zip(asked, parts, strict=True):
            if isinstance(one, Ask) and isinstance(part, Statistics) and part.per_site:
                assert jax.tree.leaves(part.per_site)
                self.seen.setdefault(one.stage, set()).update(part.per_site)
        return replies, traffic


@pytest.mark.parametrize("by_site", [True, False])
@pytest.mark.parametrize("case", ALONE)
def test_the_review_lists_what_is_not_masked(case: str, by_site: bool) -> None:
    asked = with_settings(STUDY.with_changes(by_site=by_site), *ALONE[case], seed=1)
    engine = Listening(open_sites(asked, frames(), NONE), masked=True)
    engine.seen = {}
    result = run_study(asked, engine)
    listed = seen_by_site(result.study, result.scaling)
    assert {stage: set(counts) for stage, counts in listed.items()} == engine.seen
    assert (by_site or case not in NOTHING) == bool(listed)
