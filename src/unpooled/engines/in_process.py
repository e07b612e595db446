"""An engine with all sites in this process, answering in parallel threads if they are large.

Messages are still encoded and decoded, so that the traffic is counted as between machines.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pandas as pd

from unpooled.data import Table
from unpooled.disclosure.limits import Limits
from unpooled.engines.secure_sums import Scales, meet, too_large
from unpooled.errors import Problems, StudyError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.engine import Traffic
from unpooled.protocol.fixed_point import Scale
from unpooled.protocol.messages import Question, Reply
from unpooled.site.answer import answer, hide
from unpooled.site.site import Site, open_site
from unpooled.study import ALL_SITES, Study

PARALLEL = 1_000
"""Number of people from which on a site's computations outweigh what its thread costs."""


def open_sites(study: Study, tables: Mapping[str, Table] | None, limits: Limits) -> dict[str, Site]:
    """Read and check the table of every site before the first question is sent."""
    sources: Mapping[str, Table] = tables if tables is not None else study.sites
    if not sources:
        raise StudyError(
            "a study needs at least one site",
            found="no sites",
            remedy="pass tables to fit, or write [sites.NAME] sections in the study",
        )
    if ALL_SITES in sources:
        raise StudyError(
            f"'{ALL_SITES}' is reserved for the results of all sites together",
            found="a site with that name",
            remedy="rename the site",
        )
    opened, problems = {}, Problems()
    for name, source in sources.items():
        with problems.collected():
            opened[name] = open_site(name, source, study, limits)
    problems.raise_all()
    return opened


class InProcess:
    """See `unpooled.protocol.engine.Engine`. Sums are masked if the study says so, as between machines."""

    def __init__(self, sites: Mapping[str, Site], *, masked: bool = False) -> None:
        self._sites, self._masked = dict(sites), masked
        self._scales: Scales | None = None
        self._round = 0

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self._sites)

    def exclude(self, site: str) -> None:
        del self._sites[site]
        self._scales = None

    def exchange(self, question: Question) -> tuple[dict[str, Reply], dict[str, Traffic]]:
        if not self._masked:
            return self._ask(question, None)
        if self._scales is None:
            meet(lambda asked: self._ask(asked, None)[0], self.sites)
            self._scales = Scales(len(self._sites))
        self._round += 1
        replies, traffic = self._ask(question, self._scales.of(question))
        if too_large(replies):
            replies, traffic = self._ask(question, self._scales.of(question, wider=True))
        return replies, traffic

    def _ask(self, question: Question, scale: Scale | None) -> tuple[dict[str, Reply], dict[str, Traffic]]:
        def ask(place: int, site: Site) -> tuple[Reply, Traffic]:
            sent = encode(question.to_site(place))
            asked = decode(sent)
            returned = encode(hide(site, answer(site, asked), asked, self._round, scale))
            reply = decode(returned)
            assert isinstance(reply, Reply)
            return reply, Traffic(len(sent), len(returned), hashlib.sha256(returned).hexdigest())

        places = range(len(self._sites))
        if all(_small(site) for site in self._sites.values()):
            found = dict(zip(self._sites, map(ask, places, self._sites.values()), strict=True))
        else:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                found = dict(zip(self._sites, pool.map(ask, places, self._sites.values()), strict=True))
        return {n: reply for n, (reply, _) in found.items()}, {
            n: traffic for n, (_, traffic) in found.items()
        }


def _small(site: Site) -> bool:
    return isinstance(site.table, pd.DataFrame) and len(site.table) < PARALLEL
