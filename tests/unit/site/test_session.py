"""Masks of single sites: they cancel in the sum over all sites, and in no other sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scipy.stats import chisquare

from unpooled.coordinator.aggregate import aggregate
from unpooled.errors import ApprovalError, FitError, MessageError, SiteLost
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.fixed_point import Scale, add, offered
from unpooled.protocol.key_messages import Introduction, Masked, TooLarge
from unpooled.protocol.masked import unmasked
from unpooled.protocol.messages import Ask, Gradient, Replies, Reply, Statistics, Together
from unpooled.protocol.records import Parameters
from unpooled.site.session import Party, Session, _statement

NAMES = ("north", "south", "east", "west")
QUESTION = Ask("ridge", Parameters(free={"a": np.ones((2, 3))}))
PEOPLE, OWN = 300, 15
"""Of all sites together, and of each of them."""


def parties(names: tuple[str, ...] = NAMES) -> dict[str, Party]:
    """Sites whose custodians have seen each other's fingerprints."""
    keys = {name: Ed25519PrivateKey.generate() for name in names}
    public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    return {
        name: Party(name, "study", key, {other: one for other, one in public.items() if other != name})
        for name, key in keys.items()
    }


def introductions(everybody: dict[str, Party]) -> dict[str, Introduction]:
    return {name: one.introduce(tuple(everybody)) for name, one in everybody.items()}


def sessions(names: tuple[str, ...] = NAMES) -> dict[str, Session]:
    everybody = parties(names)
    told = introductions(everybody)
    return {name: one.meet(told) for name, one in everybody.items()}


def scale(names: tuple[str, ...] = NAMES) -> Scale:
    return offered(len(names), PEOPLE)[0]


def replies(names: tuple[str, ...] = NAMES, size: int = 6) -> dict[str, Reply]:
    """For every site: sums of two θ, and a number of its own."""
    rng = np.random.default_rng(1)
    made: dict[str, Reply] = {}
    for place, name in enumerate(names):
        summed = {"gram": 1e3 * rng.normal(size=(2, size)), "square": rng.normal(size=2)}
        made[name] = Statistics(summed, {"own": np.full((2, 1), float(place))})
    return made


def hidden(made: dict[str, Session], told: dict[str, Reply], number: int = 1) -> dict[str, Reply]:
    """What the sites send, as it arrives."""
    found = {
        name: one.hide(told[name], QUESTION, number, scale(tuple(made)), OWN) for name, one in made.items()
    }
    return {name: decode(encode(one)) for name, one in found.items()}  # type: ignore[misc]


def uniform(words: np.ndarray) -> float:
    """p-value of the test that all bytes are equally frequent."""
    return float(chisquare(np.bincount(words.view(np.uint8).ravel(), minlength=256)).pvalue)


@pytest.mark.parametrize("names", [NAMES[:3], NAMES, tuple(f"site {i}" for i in range(20))])
def test_the_sum_over_all_sites_is_that_of_the_plain_replies(names: tuple[str, ...]) -> None:
    told = replies(names)
    plain, found = aggregate(told), aggregate(hidden(sessions(names), told))
    assert isinstance(plain, Statistics) and isinstance(found, Statistics)
    for name, expected in plain.summed.items():
        np.testing.assert_allclose(found.summed[name], expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(found.per_site["own"], plain.per_site["own"])


def test_masks_hide_every_sum_that_misses_a_site() -> None:
    made, told = sessions(), replies(size=20_000)
    found = hidden(made, told)
    total = np.zeros_like(found["north"].words)  # type: ignore[attr-defined]
    for name in NAMES[:-1]:
        one = found[name]
        assert isinstance(one, Masked)
        assert uniform(one.words) > 1e-4
        add(total, one.words)
        assert uniform(total) > 1e-4
    last = found[NAMES[-1]]
    assert isinstance(last, Masked)
    add(total, last.words)
    assert uniform(total) < 1e-4


def test_sites_that_are_asked_different_things_give_noise() -> None:
    made, told = sessions(), replies(size=20_000)
    found = hidden({name: made[name] for name in NAMES[1:]}, told)
    other = replace(QUESTION, parameters=Parameters(free={"a": np.full((2, 3), 1.01)}))
    found["north"] = made["north"].hide(told["north"], other, 1, scale(), OWN)
    total = np.zeros_like(found["north"].words)  # type: ignore[attr-defined]
    for one in found.values():
        assert isinstance(one, Masked)
        add(total, one.words)
    assert uniform(total) > 1e-4


def test_what_is_said_to_one_site_alone_does_not_change_the_masks() -> None:
    made, told = sessions(), replies()
    found = {}
    for place, (name, one) in enumerate(made.items()):
        own = replace(QUESTION, parameters=replace(QUESTION.parameters, per_site={"b": np.full(2, place)}))
        both = Together((own, QUESTION))
        found[name] = one.hide(Replies((told[name], Gradient({"a": np.ones(2)}))), both, 1, scale(), OWN)
    sums = aggregate(found)
    assert isinstance(sums, Replies)
    first, second = sums.replies
    assert isinstance(first, Statistics) and isinstance(second, Gradient)
    plain = aggregate(told)
    assert isinstance(plain, Statistics)
    np.testing.assert_allclose(first.summed["gram"], plain.summed["gram"], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(second.gradient["a"], len(NAMES), rtol=1e-12)


def test_the_same_numbers_look_different_in_another_round_run_or_scale() -> None:
    made, told = sessions(), replies()
    first = hidden(made, told)["north"]
    others = [
        hidden(made, told, number=2)["north"],
        hidden(sessions(), told)["north"],
        made["north"].hide(told["north"], QUESTION, 3, offered(len(NAMES), PEOPLE + 1)[0], OWN),
    ]
    for other in others:
        assert isinstance(first, Masked) and isinstance(other, Masked)
        assert not np.any(first.words == other.words)


def test_a_round_has_one_question() -> None:
    one, told = sessions()["north"], replies()["north"]
    one.hide(told, QUESTION, 2, scale(), OWN)
    one.hide(told, QUESTION, 2, scale(), OWN)  # the same again, such as after a lost connection
    other = replace(QUESTION, stage="other")
    for question, number in ((other, 2), (QUESTION, 1)):
        with pytest.raises(MessageError, match="second question in the same round"):
            one.hide(told, question, number, scale(), OWN)


def test_numbers_that_are_not_finite_are_told_for_their_site_and_theta() -> None:
    told = replies()
    south = told["south"]
    assert isinstance(south, Statistics)
    south.summed["gram"][1, 2] = np.inf
    found = unmasked(hidden(sessions(), told))
    for name, one in found.items():
        assert isinstance(one, Statistics)
        expected = [False, name == "south"]
        assert np.isnan(one.summed["gram"]).any(axis=1).tolist() == expected
        assert np.all(np.isfinite(one.summed["square"]))
    with pytest.raises(SiteLost, match="non-finite") as raised:
        aggregate(hidden(sessions(), told))
    assert raised.value.site == "south"


def test_numbers_that_are_too_large_are_neither_clipped_nor_wrapped() -> None:
    told = replies()
    north = told["north"]
    assert isinstance(north, Statistics)
    north.summed["square"][0] = 1.1 * OWN * scale().largest
    made = sessions()
    assert made["north"].hide(north, QUESTION, 1, scale(), OWN) == TooLarge()
    wide = offered(len(NAMES), PEOPLE)[1]
    found = {name: one.hide(told[name], QUESTION, 1, wide, OWN) for name, one in made.items()}
    plain, sums = aggregate(told), aggregate(found)
    assert isinstance(plain, Statistics) and isinstance(sums, Statistics)
    np.testing.assert_allclose(sums.summed["square"], plain.summed["square"], rtol=1e-12)
    np.testing.assert_allclose(sums.summed["gram"], plain.summed["gram"], rtol=1e-9)
    with pytest.raises(FitError, match="'north'"):
        aggregate({**found, "north": TooLarge()})


def test_another_shape_is_a_lost_site() -> None:
    told = replies()
    other = replies(size=7)["south"]
    with pytest.raises(SiteLost, match="another shape") as raised:
        aggregate(hidden(sessions(), {**told, "south": other}))
    assert raised.value.site == "south"


def test_equal_tables_are_recognised_and_nothing_else_about_them_is() -> None:
    made = sessions()
    tables = dict.fromkeys(NAMES, b"one") | {"south": b"other"}
    tags = {name: one.tags(tables[name]) for name, one in made.items()}
    assert tags["north"]["east"] == tags["east"]["north"]
    assert tags["north"]["south"] != tags["south"]["north"]
    assert tags["north"]["east"] != tags["north"]["west"]  # no third party can compare


@pytest.mark.parametrize("count", [1, 2])
def test_two_sites_do_not_mask(count: int) -> None:
    assert not any(one.masks for one in sessions(NAMES[:count]).values())
    assert all(one.masks for one in sessions(NAMES[:3]).values())


def test_a_coordinator_that_swaps_a_key_or_an_identity_is_refused() -> None:
    everybody = parties()
    told = introductions(everybody)
    impostor = Party("south", "study")
    false = impostor.introduce(NAMES)
    unsigned = replace(told["south"], key=false.key)
    for one in (false, unsigned, replace(false, identity=told["south"].identity)):
        with pytest.raises(ApprovalError, match="another identity"):
            everybody["north"].meet({**told, "south": one})
    assert everybody["north"].meet(told).masks  # and the honest keys still are accepted


def test_an_introduction_belongs_to_its_study_and_sites() -> None:
    everybody = parties()
    told = introductions(everybody)
    south = everybody["south"]
    elsewhere = Party("south", "another study", south.identity).introduce(NAMES)
    fewer = Party("south", "study", south.identity).introduce(NAMES[:3])
    for one in (elsewhere, fewer):
        with pytest.raises(ApprovalError):
            everybody["north"].meet({**told, "south": one})


def test_sites_that_no_custodian_has_seen_are_refused() -> None:
    one = parties()["north"]
    with pytest.raises(ApprovalError, match="not approved: 'stranger'"):
        one.introduce((*NAMES, "stranger"))
    for wrong in (NAMES[1:], ("north", "north", "south"), ["north", "south", "east"], ("north", 3)):
        with pytest.raises(MessageError):
            one.introduce(wrong)  # type: ignore[arg-type]


def test_keys_are_exchanged_in_order_and_used_once() -> None:
    everybody = parties()
    with pytest.raises(MessageError):
        everybody["north"].meet({})
    told = introductions(everybody)
    for wrong in ({}, {name: told[name] for name in NAMES[:3]}, {**told, "north": told["south"]}):
        with pytest.raises((MessageError, ApprovalError)):
            everybody["north"].meet(wrong)
    everybody["north"].meet(told)
    with pytest.raises(MessageError):
        everybody["north"].meet(told)


def test_one_key_for_two_sites_is_refused() -> None:
    """Masks of two sites with one key would cancel between them."""
    everybody = parties()
    told = introductions(everybody)
    key, identity = told["south"].key, everybody["east"].identity
    signature = identity.sign(_statement("study", "east", NAMES, key))
    with pytest.raises(MessageError, match="one key for two sites"):
        everybody["north"].meet({**told, "east": replace(told["east"], key=key, signature=signature)})


def test_secrets_are_in_no_text() -> None:
    party, made = parties()["north"], sessions()["north"]
    text = repr(party) + repr(made)
    assert not any(secret.hex() in text or repr(secret) in text for secret in made.secrets.values())
    assert "PrivateKey" not in text
