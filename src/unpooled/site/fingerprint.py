"""Fingerprints of identities: a few words that two people can compare by telephone."""

from __future__ import annotations

import hashlib

_TEXT = """
actor admiral album almond amber anchor angel apple april arrow artist autumn avenue bacon badge bagel
bamboo banana barrel basket beach bell berry bicycle bishop blanket blossom board bonfire bottle boulder
branch bread bridge bronze bubble bucket bullet butter cabin cactus camel candle canyon carpet castle cedar
cello chalk cherry chimney cinema circle clock cloud clown coach coffee comet copper coral cotton couch
cowboy crane cricket crown crystal curtain daisy dancer desert diamond dinner doctor dolphin donkey dragon
drum eagle easter echo eclipse elbow elephant emerald engine envelope evening fabric falcon farmer feather
fence fiddle finger flag flower flute forest fossil fountain fridge frog funnel garden garlic gazelle giant
ginger giraffe glacier globe goat golden gorilla grape gravel guitar hammer harbour hazel helmet heron hippo
honey horse hotel hunter husky iceberg igloo insect island ivory jacket jaguar jelly jewel jockey jungle
kettle kidney kitchen knight koala ladder lagoon lantern laundry lemon leopard library lizard lobster lotus
lunch magnet mammoth mango marble meadow melon mercury mirror monkey mountain muffin museum napkin needle
nephew noodle novel nurse oasis ocean octopus olive onion opera orange orchid ostrich otter oyster paddle
palace panda parrot pebble pencil pepper piano pigeon pillow pirate planet pocket poet potato prince pumpkin
puzzle pyramid rabbit radio rainbow raven ribbon river robot rocket rose ruby saddle salmon sandal saturn
school scissors shadow sheriff silver spider spoon squirrel statue stone sugar summer sunset swan table
teacher tiger tomato tractor trumpet tulip turtle umbrella uncle valley velvet village violin volcano waffle
walnut window winter yacht yellow zebra zipper
"""
WORDS = tuple(_TEXT.split())
"""One word for each byte; no two begin with the same four letters."""
LENGTH = 8
"""Words of a fingerprint: 64 bits, so that nobody finds another identity with the same words."""


def fingerprint(identity: bytes) -> str:
    """The words of a public identity.

    Parameters
    ----------
    identity : bytes
        The public key of a site, 32 bytes.

    Returns
    -------
    str
        Eight words.

    Examples
    --------
    >>> fingerprint(bytes(32))
    'april teacher uncle flute camel jungle elephant bread'
    """
    digest = hashlib.sha256(b"unpooled fingerprint" + identity).digest()
    return " ".join(WORDS[byte] for byte in digest[:LENGTH])
