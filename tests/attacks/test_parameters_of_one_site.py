"""A coordinator asks the same twice but for one site's parameters: the difference of the sums is that site's.

Where a study lets sites have parameters of their own, this cannot be told from an honest question, and only
the audit shows it. Where it does not, masks depend on the parameters, and the sum is lost.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engines.stage import study, tables
from unit.engines.test_masked_sums import gateways
from unpooled.coordinator.aggregate import aggregate
from unpooled.coordinator.agreement import reach_agreement
from unpooled.coordinator.run import adoption
from unpooled.engines.remote import RemoteEngine
from unpooled.protocol.messages import Ask, Message, Statistics
from unpooled.protocol.records import Parameters
from unpooled.study import Study

pytestmark = pytest.mark.slow

TARGET = 1
"""The place of the site that the coordinator is after."""


class Curious:
    """A coordinator that has agreed on a study with the sites, and then asks as it likes."""

    def __init__(self, root: Path, asked: Study) -> None:
        root.mkdir()
        self.engine = RemoteEngine(gateways(root, tables(), asked), asked)
        procedure, reply = reach_agreement(asked), None
        while True:
            try:
                question = procedure.send(reply)  # type: ignore[arg-type]
            except StopIteration as done:
                agreed = done.value
                break
            reply = self.sum_over_sites(question)
        self.sum_over_sites(adoption(asked, agreed.schema, agreed.scaling))

    def sum_over_sites(self, question: Message) -> Message:
        replies, _ = self.engine.exchange(question)  # type: ignore[arg-type]
        return aggregate(replies)

    def slopes(self, targets: float) -> np.ndarray:
        """Slope and curvature of the treatment's log likelihood, at another intercept for one site."""
        own = np.full((1, 3, 4), 0.1)
        own[:, TARGET, 0] = targets
        question = Parameters(
            fixed={"without": -np.ones(1), "draw": np.zeros(1)}, per_site={"treatment": own}
        )
        found = self.sum_over_sites(Ask("treatment", question))
        assert isinstance(found, Statistics)
        return np.concatenate([np.ravel(found.summed[name]) for name in ("score", "gram")])

    def difference(self) -> np.ndarray:
        """What the sums of one site change by, if the coordinator sees sums."""
        return self.slopes(0.8) - self.slopes(0.1)


@pytest.mark.parametrize("terms", ["none", "offsets"])
def test_only_where_sites_may_have_parameters_of_their_own_do_two_sums_tell_of_one_site(
    terms: str, tmp_path: Path
) -> None:
    method = {"name": "aipw", "site_terms": terms, "folds": 1}
    asked = study("curious", method=method, diagnostics=False, privacy={"aggregation": "secure"})
    plain = study("curious", method=method, diagnostics=False, privacy={"aggregation": "plain"})
    truth = Curious(tmp_path / "plain", plain).difference()
    found = Curious(tmp_path / "secure", asked).difference()
    assert np.abs(truth).max() > 1.0
    told = np.allclose(found, truth, rtol=1e-6, atol=1e-6)
    assert told == (terms == "offsets")
    if not told:
        # Uniform up to a million: any one of the numbers may be small, but hardly half of them.
        assert np.median(np.abs(found)) > 1e3 * np.abs(truth).max()
