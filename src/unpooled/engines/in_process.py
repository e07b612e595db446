"""Every site in this process. Messages still go through the codec, so bytes are real."""

from __future__ import annotations

from collections.abc import Mapping

from unpooled.protocol.codec import decode, encode
from unpooled.protocol.engine import Traffic
from unpooled.protocol.messages import Message
from unpooled.site.answer import answer
from unpooled.site.site import Site


class InProcess:
    """See `unpooled.protocol.engine.Engine`."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self._sites = dict(sites)

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self._sites)

    def exchange(self, question: Message) -> tuple[dict[str, Message], dict[str, Traffic]]:
        sent = encode(question)
        replies, traffic = {}, {}
        for name, site in self._sites.items():
            returned = encode(answer(site, decode(sent)))
            replies[name], traffic[name] = decode(returned), Traffic(len(sent), len(returned))
        return replies, traffic
