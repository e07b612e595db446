"""What masks cost: milliseconds of a site for each round, and bytes, by the number of sites and of numbers.

    python benchmarks/secure_sums.py [--sites 3 20 100] [--kilobytes 10 100 1000] [--rounds 20]

Every measurement is of one site: turning its numbers into fixed point, making the masks that it shares with
each other site, and adding them. The coordinator's part is adding up the replies of all sites. The exchange
of keys is measured by itself; it happens once in a run.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np

from unpooled.coordinator.aggregate import aggregate
from unpooled.protocol.codec import encode
from unpooled.protocol.fixed_point import offered
from unpooled.protocol.messages import Ask, Statistics
from unpooled.protocol.records import Parameters
from unpooled.site.session import Party, Session

PEOPLE = 1000


def sessions(count: int) -> tuple[dict[str, Session], float]:
    """The sites of a run, and the seconds that the exchange of keys takes one of them."""
    everybody = {f"site {place}": Party(f"site {place}", "study") for place in range(count)}
    told = {name: one.introduce(tuple(everybody)) for name, one in everybody.items()}
    start = time.perf_counter()
    made = {name: one.meet(told) for name, one in everybody.items()}
    return made, (time.perf_counter() - start) / count


def measured(count: int, kilobytes: int, rounds: int) -> str:
    made, met = sessions(count)
    question, scale = Ask("stage", Parameters()), offered(count, PEOPLE * count)[0]
    reply = Statistics({"sums": PEOPLE * np.random.default_rng(0).normal(size=(1, 125 * kilobytes))})
    plain = len(encode(reply))
    first, *others = made.values()
    seconds, added = [], []
    for number in range(1, rounds + 1):
        start = time.perf_counter()
        hidden = first.hide(reply, question, number, scale, PEOPLE)
        seconds.append(time.perf_counter() - start)
    replies = {one.name: one.hide(reply, question, rounds, scale, PEOPLE) for one in (first, *others)}
    for _ in range(3):
        start = time.perf_counter()
        total = aggregate(replies)
        added.append(time.perf_counter() - start)
    assert isinstance(total, Statistics)
    np.testing.assert_allclose(
        total.summed["sums"], count * reply.summed["sums"], rtol=1e-9, atol=1e-12 * PEOPLE * count
    )
    more = len(encode(hidden)) - plain
    cells = (
        count,
        kilobytes,
        f"{1e3 * median(seconds):.1f}",
        f"{1e3 * median(added):.1f}",
        more,
        f"{1e3 * met:.1f}",
    )
    return " | ".join(map(str, cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 20, 100])
    parser.add_argument("--kilobytes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    print("sites | kB | ms at a site | ms at the coordinator | bytes more | ms for keys")
    for count in options.sites:
        for kilobytes in options.kilobytes:
            print(measured(count, kilobytes, options.rounds), flush=True)


if __name__ == "__main__":
    main()
