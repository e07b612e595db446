"""Who has what the coordinator received, and a list of all possible people, cannot tell who is at a site."""

from __future__ import annotations

import hashlib
import hmac
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from engines.stage import approve_together
from unpooled.coordinator.duplicates import leave_out_copies
from unpooled.methods.method import with_explicit_settings
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.duplicate_messages import CountKeys, FinishKeys, LeaveOut, RaiseKeys
from unpooled.protocol.envelope import Asked, open_reply
from unpooled.protocol.messages import Refusal, SiteReplies
from unpooled.site import points
from unpooled.site.duplicates import DOMAIN
from unpooled.site.folder import SiteFolder
from unpooled.site.gateway import Gateway
from unpooled.study import Source, Study

GUESSES = [str(number) for number in range(500_000_000, 500_002_000)]
"""A small part of all nine-digit numbers; everybody at the sites is among them."""
SHARED_KEY = b"a key that only the sites have, drawn at random"
NINE_DIGITS = 10**9


class Sites:
    """The gateways of three sites, and everything that the coordinator received from them."""

    def __init__(self, root: Path, duplicates: str = "leave out") -> None:
        self.study = with_explicit_settings(
            Study(
                treatment="w",
                outcome="y",
                covariates=["x"],
                id="number",
                privacy={"duplicates": duplicates, "aggregation": "plain"},
                method={"name": "aipw"},
            )
        )
        rng = np.random.default_rng(0)
        made: list[Path] = []
        for place, name in enumerate(("north", "south", "east")):
            numbers = 500_000_000 + rng.choice(2000, 200, replace=False)
            table = pd.DataFrame({"number": numbers, "x": rng.normal(size=200), "w": np.arange(200) % 2})
            table.assign(y=rng.normal(size=200)).to_parquet(root / f"{place}.parquet")
            own = SiteFolder.create(root / name, name, Source(path=str(root / f"{place}.parquet")))
            (own.folder / "duplicates.key").write_bytes(SHARED_KEY)
            made.append(own.folder)
        approve_together(made, self.study)
        self.doors = {folder.name: Gateway(folder) for folder in made}
        self.round = 0
        self.questions: list[Any] = []
        self.received: list[Any] = []

    def ask(self, question: Any, site: str) -> Any:
        self.round += 1
        asked = self.study.model_dump_json(exclude={"sites"})
        sealed = Asked(asked, b"run", self.round, encode(question)).seal()
        reply = decode(open_reply(self.doors[site].answer(sealed), sealed, site).reply)
        self.received.append(reply)
        return reply

    def search(self) -> None:
        """As an honest coordinator does."""
        procedure, reply = leave_out_copies(self.study), None
        while True:
            try:
                question = procedure.send(reply)  # type: ignore[arg-type]
            except StopIteration as done:
                self.found = done.value
                return
            self.questions.append(question)
            replies = {name: self.ask(question.to_site(i), name) for i, name in enumerate(self.doors)}
            assert not any(isinstance(one, Refusal) for one in replies.values()), replies
            reply = SiteReplies(replies)

    def seen(self) -> set[bytes]:
        """Every point and tag, also in part."""
        lists = [getattr(one, "points", getattr(one, "tags", None)) for one in self.received]
        rows = {row.tobytes() for one in lists if one is not None for row in one}
        return rows | {row[:16] for row in rows}


def dictionary(attempt: Any) -> set[bytes]:
    """What an attacker computes from all guesses."""
    made = [attempt(guess) for guess in GUESSES]
    return {one[:16] for one in made} | set(made)


def test_nothing_that_the_coordinator_received_can_be_compared_with_guesses(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    sites.search()
    assert sum(sites.found.overlaps.values()) > 20
    seen = sites.seen()
    guessed = points.hashed(points.digests_of(GUESSES, DOMAIN))
    attempts = [
        dictionary(lambda guess: hashlib.sha256(guess.encode()).digest()),
        dictionary(lambda guess: hashlib.sha512(guess.encode()).digest()),
        dictionary(lambda guess: hashlib.sha256(DOMAIN + guess.encode()).digest()),
        {point.tobytes() for point in guessed},
        {hashlib.sha256(b"unpooled tag" + point.tobytes()).digest()[:16] for point in guessed},
    ]
    for public in (b"0", b"unpooled", sites.study.hash.encode()):
        attempts.append({point.tobytes() for point in points.raised(guessed, points.scalar(public))})
    assert [len(seen & attempt) for attempt in attempts] == [0] * len(attempts)


def test_guesses_cannot_be_tested_by_ratios_between_lists(tmp_path: Path) -> None:
    """No list holds a point of another one, and tags are no points that could be raised further."""
    sites = Sites(tmp_path)
    sites.search()
    lists = [one.points for one in sites.received if hasattr(one, "points")]
    rows = [row.tobytes() for one in lists for row in one]
    assert len(rows) == len(set(rows)) == 9 * lists[0].shape[0]


def test_the_same_attack_on_bare_hashes_finds_everybody() -> None:
    """The reason why they are not offered: the rate on one core, and what it means for all numbers."""
    table = {hashlib.sha256(f"{500_000_000 + 7 * person}".encode()).digest() for person in range(200)}
    start = time.perf_counter()
    found = [guess for guess in GUESSES if hashlib.sha256(guess.encode()).digest() in table]
    seconds = time.perf_counter() - start
    assert len(found) == 200
    hours = NINE_DIGITS * seconds / len(GUESSES) / 3600
    print(f"{len(GUESSES) / seconds:,.0f} guesses a second: all nine-digit numbers in {hours:.1f} hours")
    assert hours < 24


def test_keyed_hashes_hold_without_the_key_and_fall_with_it(tmp_path: Path) -> None:
    sites = Sites(tmp_path, "keyed hash")
    sites.search()
    seen = sites.seen()

    def by(key: bytes) -> set[bytes]:
        own = hmac.digest(key, f"unpooled duplicates {sites.study.hash}".encode(), "sha256")
        return dictionary(lambda guess: hmac.digest(own, guess.encode(), "sha256"))

    for without in (b"", b"0" * 32, sites.study.hash.encode()):
        assert not seen & by(without)
    everybody = {
        number for place in range(3) for number in pd.read_parquet(tmp_path / f"{place}.parquet")["number"]
    }
    assert len(seen & by(SHARED_KEY)) == len(everybody), "whoever has the key knows everybody"


def test_a_site_raises_no_more_guesses_than_the_announced_lists_have(tmp_path: Path) -> None:
    """A coordinator may send guesses in place of a list: in place, because each step is answered once."""
    sites = Sites(tmp_path)
    sites.search()
    sizes = sites.questions[1].sizes
    guesses = points.hashed(points.digests_of(GUESSES, DOMAIN))
    (length,) = set(sizes.values())
    for name, hop, owner in (("south", 1, "north"), ("south", 2, "east"), ("north", 1, "east")):
        assert isinstance(sites.ask(RaiseKeys(sizes, hop, {owner: guesses[:length]}), name), Refusal)
        assert isinstance(sites.ask(RaiseKeys(sizes, hop, {owner: guesses}), name), Refusal)
    assert isinstance(sites.ask(FinishKeys(sizes, {"south": guesses[:length]}), "south"), Refusal)
    assert isinstance(sites.ask(LeaveOut(sizes, {"south": np.arange(9)}), "south"), Refusal)
    assert not isinstance(sites.ask(CountKeys(sites.study.columns), "south"), Refusal)
