"""A site's part in finding people who are at several sites, so that each is counted once.

Private set intersection by Diffie–Hellman with any number of sites. Site s draws a power k_s and a blinding
power r_s. It sends its people as points H(key)^r_s, in random order among random points. Every other site t
raises this list to its k_t. When the list is back, the site raises it to k_s / r_s, so that the tag of a
person is a hash of H(key)^(k_1 ⋯ k_m) at every site, and sends the tags in another random order. The
coordinator compares them and names the places whose people the site leaves out.

All secrets follow from one seed, which is deleted when the rows are left out. In one process, where one
person holds all tables, it follows from the study's seed, so that a resumed study finds the same.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from unpooled.data import Batches
from unpooled.data.person_keys import PersonKeys, person_keys
from unpooled.disclosure.private_files import make_own_folder
from unpooled.errors import ApprovalError, DataError, LimitRefusal, MessageError, ResultsError
from unpooled.protocol.codec import encode
from unpooled.protocol.duplicate_messages import (
    AboutPeople,
    Blinded,
    BlindKeys,
    CountKeys,
    FinishKeys,
    HashKeys,
    KeysCounted,
    LeaveOut,
    LeftOut,
    Raised,
    RaiseKeys,
    Tagged,
)
from unpooled.protocol.key_messages import Introduce, Meet
from unpooled.protocol.messages import Question, Reply
from unpooled.site import points
from unpooled.site.private_files import append, keeping, write_whole
from unpooled.study import Study

if TYPE_CHECKING:
    from unpooled.site.site import Site

FOLDER, LOG, KEY = "duplicates", "duplicates.log", "duplicates.key"
"""In the site's folder: what was left out by study, how many for the custodian, and the sites' shared key."""
LEAST_KEY = 32
"""Fewest bytes of the shared key."""
TAG = 16
"""Bytes of a tag: among 2^20 people, two have the same tag by chance with probability 2^-89."""
SMALLEST, STEPS = 64, 8
"""Shortest list; and steps from one power of two to the next, in which lengths of lists are rounded up."""
MOST = 15 * 2**17
"""Longest list."""
DOMAIN = b"unpooled person 1 "


def rounded_up(people: int) -> int:
    """The length of a site's list: the number of its people, rounded up by at most an eighth.

    >>> [rounded_up(people) for people in (3, 65, 1000, 100_000)]
    [64, 72, 1024, 106496]
    """
    step = max(1 << max(people - 1, 1).bit_length() - 1, SMALLEST) // STEPS
    return max(-(-people // step) * step, SMALLEST)


class Progress(BaseModel):
    """How far a site has come under one approval; a private file, so that it holds across restarts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    approval: str = ""
    table: str = ""
    """Digest of the table."""
    begun: int = 0
    """How often lists were made: once, and again only without a lost site."""
    sites: tuple[str, ...] = ()
    """The sites of the first time."""
    sizes: dict[str, int] = {}
    """The sites, and the length of each list."""
    seed: str = ""
    """From which all secrets follow; deleted when the rows have been left out."""
    lists: dict[str, str] = {}
    """Digest of the list that was answered, by hop, and as "home" of the own one."""
    told: str = ""
    """Digest of the question by which rows were left out."""
    left_out: tuple[int, ...] = ()
    """Places of rows in the table."""


@dataclass
class Keeper:
    """What a site needs to find its people at other sites: the whole table, and how far it has come."""

    name: str
    study: Study
    table: pd.DataFrame = field(repr=False)
    """The table with all rows."""
    stable: bytes = field(repr=False)
    """Decides which row of a person stays; for the life of the study here."""
    folder: Path | None = None
    """The site's folder; None in one process."""
    random: bool = False
    """Whether secrets are drawn anew; otherwise they follow from the study's seed."""
    progress: Progress = Progress()

    @cached_property
    def keys(self) -> PersonKeys:
        found = person_keys(self.table, self.study.columns, site=self.name)
        if len(found.keys) > MOST:
            raise LimitRefusal(
                f"duplicates are found among at most {MOST:,} people of a site",
                found="more people",
                remedy='split the site, or set duplicates = "ignore" under [privacy]',
            )
        return found

    @property
    def state(self) -> str:
        """Empty until the rows are left out a second time: what was answered before is then out of date."""
        return json.dumps([*self.progress.sizes]) if self.progress.begun > 1 else ""

    @property
    def path(self) -> Path | None:
        return None if self.folder is None else self.folder / FOLDER / f"{self.study.hash}.json"

    def save(self, progress: Progress) -> None:
        """Keep how far the site has come, on disk before it answers."""
        if self.path is not None:
            with keeping(self.path):
                make_own_folder(self.path.parent)
            write_whole(self.path, progress.model_dump_json() + "\n")
        self.progress = progress


def in_memory(name: str, study: Study, table: pd.DataFrame | Batches) -> Keeper | None:
    """The keeper of a table in this process; None if the study does not look for duplicates."""
    if study.duplicates == "ignore":
        return None
    if isinstance(table, Batches):
        raise DataError(
            "people who are at several sites can only be found in tables that are held in memory",
            found=f"a table in batches at site '{name}'",
            remedy='set duplicates = "ignore" under [privacy], or use a smaller table',
        )
    return Keeper(name, study, table, f"{study.seed} {name}".encode())


def reopen(site: Site, folder: Path, approval: str, table: str, salt: int | None) -> None:
    """Give a remote site its folder, and leave out the rows that were left out before a restart."""
    keeper = site.duplicates
    if keeper is None:
        return
    keeper.folder, keeper.random = folder, salt is not None
    if salt is not None:
        keeper.stable = salt.to_bytes(16, "big")
    stored = _read(keeper)
    if stored.approval == approval and stored.table == table:
        keeper.progress = stored
        _leave_out(site, stored.left_out)
    else:
        keeper.progress = Progress(approval=approval, table=table)


def _read(keeper: Keeper) -> Progress:
    try:
        return Progress.model_validate_json(keeper.path.read_bytes() if keeper.path else b"{}")
    except FileNotFoundError:
        return Progress()
    except (OSError, ValidationError):
        raise ResultsError(
            "the site's record of people at other sites must be readable",
            found=f"a file that is damaged or cannot be read in the folder {FOLDER}",
            remedy="restore an undamaged copy, or remove it and approve the study again",
        ) from None


def require_counted_once(site: Site, question: Question) -> None:
    """Refuse all other questions until the rows of people at other sites are left out."""
    keeper = site.duplicates
    if keeper is None or keeper.progress.told or isinstance(question, AboutPeople | Introduce | Meet):
        return
    raise ApprovalError(
        "in this study, people who are at several sites are left out first",
        found="a question before that",
        remedy='run exactly the study that was approved, or have it reviewed with duplicates = "ignore"',
    )


def answer_about_people(site: Site, question: Question) -> Reply:
    """The reply to a question by which people at several sites are found."""
    keeper = site.duplicates
    if keeper is None:
        raise _unexpected("a question about people at several sites, in a study that does not look for them")
    match question:
        case CountKeys():
            return _counted(keeper, site.limits.cell)
        case BlindKeys(sizes):
            _begin(keeper, sizes)
            return Blinded(_List(keeper).blinded())
        case HashKeys(sizes):
            key = _shared_key(keeper)
            _begin(keeper, sizes)
            return Tagged(_List(keeper).hashed(key))
        case RaiseKeys(sizes, hop, lists):
            _continue(keeper, sizes)
            owner = _owner(keeper, hop)
            received = _once(keeper, str(hop), owner, lists)
            return Raised(points.raised(received, _List(keeper).power))
        case FinishKeys(sizes, lists):
            _continue(keeper, sizes)
            return Tagged(_List(keeper).tags(_once(keeper, "home", keeper.name, lists)))
        case LeaveOut(sizes, places):
            return _told(site, keeper, question, sizes, places)
    raise _unexpected(type(question).__name__)


def _counted(keeper: Keeper, cell: int) -> KeysCounted:
    found = keeper.keys

    def shown(count: int) -> int | None:
        return count if count == 0 or count >= cell else None

    return KeysCounted(
        rows=len(keeper.table),
        size=rounded_up(len(found.keys)),
        without_key=shown(found.without_key),
        wrong_check=shown(found.wrong_check),
        repeated=shown(found.repeated),
    )


def _begin(keeper: Keeper, sizes: Mapping[str, int]) -> None:
    """Draw the secrets of a new search among these sites, if there may be another."""
    before = keeper.progress
    if before.seed and before.sizes == sizes:
        return
    _require_sizes(keeper, sizes)
    most = 1 if keeper.study.min_sites is None else 2
    fewer = not before.sites or set(sizes) < set(before.sites)
    if keeper.random and (before.begun >= most or not fewer):
        raise LimitRefusal(
            "people at several sites are looked for once under one approval",
            found="other lists or other sites than before",
            remedy="run exactly the study that was approved; to run it once more, ask for a new approval",
        )
    keeper.save(
        before.model_copy(
            update={
                "begun": before.begun + 1,
                "sites": before.sites or tuple(sizes),
                "sizes": dict(sizes),
                "seed": _seed(keeper, sizes).hex(),
                "lists": {},
                "told": "",
            }
        )
    )


def _seed(keeper: Keeper, sizes: Mapping[str, int]) -> bytes:
    if keeper.random:
        return secrets.token_bytes(32)
    known = json.dumps([keeper.study.seed, keeper.name, list(sizes)])
    return hashlib.sha256(known.encode()).digest()


def _continue(keeper: Keeper, sizes: Mapping[str, int]) -> None:
    """Require the search that has begun. In one process it begins where a resumed study continues."""
    if keeper.progress.sizes != sizes or not keeper.progress.seed:
        if keeper.random:
            raise _unexpected("lists of another search, or before one has begun, or after its end")
        _begin(keeper, sizes)


def _require_sizes(keeper: Keeper, sizes: Mapping[str, int]) -> None:
    right = isinstance(sizes, dict) and all(
        isinstance(name, str) and type(size) is int and 0 < size <= MOST for name, size in sizes.items()
    )
    if not right or sizes.get(keeper.name) != rounded_up(len(keeper.keys.keys)):
        raise _unexpected("other lengths of lists than the sites have")


def _owner(keeper: Keeper, hop: int) -> str:
    sites = list(keeper.progress.sizes)
    if type(hop) is not int or not 1 <= hop < len(sites):
        raise _unexpected("a list that has been everywhere")
    return sites[(sites.index(keeper.name) - hop) % len(sites)]


def _once(keeper: Keeper, step: str, owner: str, lists: Mapping[str, np.ndarray]) -> np.ndarray:
    """The one list of this step, of the announced length; a second list in the same step is refused."""
    found = lists.get(owner) if isinstance(lists, dict) and len(lists) == 1 else None
    length = keeper.progress.sizes[owner]
    if not isinstance(found, np.ndarray) or found.shape != (length, points.POINT) or found.dtype != np.uint8:
        raise _unexpected("a list of another site or another length than announced")
    digest = hashlib.sha256(found.tobytes()).hexdigest()
    if keeper.progress.lists.get(step, digest) != digest:
        raise LimitRefusal(
            "a site raises each list once",
            found="a second list in the same step",
            remedy="run exactly the study that was approved; to run it once more, ask for a new approval",
        )
    keeper.save(keeper.progress.model_copy(update={"lists": {**keeper.progress.lists, step: digest}}))
    return found


class _List:
    """A site's list: first its people, then as many random points or tags as it is longer."""

    def __init__(self, keeper: Keeper) -> None:
        self._keys, self._seed = keeper.keys.keys, bytes.fromhex(keeper.progress.seed)
        self._length = keeper.progress.sizes[keeper.name]
        self._more = self._length - len(self._keys)
        self._sent, self._final = self._shuffled("sent"), self._shuffled("final")

    @property
    def power(self) -> bytes:
        """k_s"""
        return points.scalar(self._secret("power", 64))

    @property
    def _blinding(self) -> bytes:
        """r_s"""
        return points.scalar(self._secret("blinding", 64))

    def blinded(self) -> np.ndarray:
        """H(key)^r_s in random order, among random points."""
        people = points.hashed(points.digests_of(self._keys, DOMAIN))
        random = np.frombuffer(self._secret("random points", points.WIDE * self._more), np.uint8)
        others = points.hashed(random.reshape(-1, points.WIDE))
        return np.concatenate([points.raised(people, self._blinding), others])[self._sent]

    def tags(self, home: np.ndarray) -> np.ndarray:
        """Hashes of home^(k_s / r_s), in another random order."""
        found = points.raised(home, points.quotient(self.power, self._blinding))
        tags = np.empty((self._length, TAG), np.uint8)
        tags[self._sent] = _digests([point.tobytes() for point in found])
        return tags[self._final]

    def hashed(self, key: bytes) -> np.ndarray:
        """Hashes of the people by a key that the sites share, in random order among random tags."""
        people = [hmac.digest(key, person.encode(), "sha256")[:TAG] for person in self._keys]
        random = self._secret("random tags", TAG * self._more)
        tags = np.frombuffer(b"".join(people) + random, np.uint8).reshape(-1, TAG)
        return tags[self._final]

    def people(self, places: np.ndarray) -> np.ndarray:
        """The people at these places of the list of tags."""
        found = self._final[places]
        return found[found < len(self._keys)]

    def _secret(self, purpose: str, size: int) -> bytes:
        return hashlib.shake_256(self._seed + purpose.encode()).digest(size)

    def _shuffled(self, purpose: str) -> np.ndarray:
        return np.argsort(np.frombuffer(self._secret(purpose, 8 * self._length), "<u8"), kind="stable")


def _digests(values: list[bytes]) -> np.ndarray:
    parts = [hashlib.sha256(b"unpooled tag" + value).digest()[:TAG] for value in values]
    return np.frombuffer(b"".join(parts), np.uint8).reshape(-1, TAG)


def _shared_key(keeper: Keeper) -> bytes:
    """The key of this study, from the one that the sites share."""
    own = b"one person holds all tables" * 2
    if keeper.folder is not None:
        try:
            own = (keeper.folder / KEY).read_bytes().strip()
        except OSError:
            own = b""
    if len(own) < LEAST_KEY:
        raise ResultsError(
            f"keyed hashes need the key that the sites share, in the file {KEY} of the site's folder",
            found=f"no such file, or fewer than {LEAST_KEY} bytes",
            remedy="agree on a random key with the other custodians, without the coordinator",
        )
    return hmac.digest(own, f"unpooled duplicates {keeper.study.hash}".encode(), "sha256")


def _told(
    site: Site, keeper: Keeper, question: Question, sizes: Mapping[str, int], places: Mapping[str, np.ndarray]
) -> LeftOut:
    """Leave out repeated rows and the people at these places; then the secrets are no longer needed."""
    digest = hashlib.sha256(encode(question)).hexdigest()
    if keeper.progress.told != digest:
        if len(sizes) == 1 and not keeper.progress.seed:
            _begin(keeper, sizes)
        _continue(keeper, sizes)
        chosen = _List(keeper).people(_places(keeper, places))
        rows = _settled(keeper, _rows(keeper, chosen), site.limits.cell)
        _leave_out(site, rows)
        erased = {"seed": "" if keeper.random else keeper.progress.seed, "lists": {}}
        keeper.save(keeper.progress.model_copy(update={"told": digest, "left_out": rows, **erased}))
        _tell_custodian(keeper, len(chosen))
    return LeftOut(len(site.frame))


def _places(keeper: Keeper, places: Mapping[str, np.ndarray]) -> np.ndarray:
    found = places.get(keeper.name) if isinstance(places, dict) and len(places) == 1 else None
    length = keeper.progress.sizes[keeper.name]
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "iu":
        raise _unexpected("no list of places")
    if len(np.unique(found)) < len(found) or np.any((found < 0) | (found >= length)):
        raise _unexpected("places that the list does not have, or twice")
    return found


def _rows(keeper: Keeper, chosen: np.ndarray) -> tuple[int, ...]:
    """The rows of these people, and all but one of every other person; a secret decides which one stays."""
    person = keeper.keys.person
    drawn = hashlib.shake_256(b"rows" + keeper.stable).digest(8 * len(person))
    order = np.lexsort((np.frombuffer(drawn, "<u8"), person))
    again = np.zeros(len(person), dtype=bool)
    again[order[1:]] = person[order[1:]] == person[order[:-1]]
    out = (again & (person >= 0)) | np.isin(person, chosen)
    return tuple(int(row) for row in np.flatnonzero(out))


def _settled(keeper: Keeper, rows: tuple[int, ...], least: int) -> tuple[int, ...]:
    """These rows, unless they differ from those left out before in so few that sums would reveal them."""
    before = set(keeper.progress.left_out)
    return keeper.progress.left_out if len(before ^ set(rows)) < least else rows


def _leave_out(site: Site, rows: tuple[int, ...]) -> None:
    """Continue with the other rows."""
    assert site.duplicates is not None
    remaining = site.duplicates.table.drop(index=list(rows)).reset_index(drop=True)
    if len(remaining) < 2:
        raise DataError(
            f"site '{site.name}' must have at least two rows",
            found="fewer without the people who are counted at other sites",
            remedy="leave the site out, or raise max_copies under [privacy]",
        )
    site.table, site.adopted, site.described, site.profiled = remaining, None, None, None


def _tell_custodian(keeper: Keeper, elsewhere: int) -> None:
    if keeper.folder is None:
        return
    found, when = keeper.keys, datetime.now(UTC).isoformat(timespec="seconds")
    append(
        keeper.folder / LOG,
        f"{when} study {keeper.study.hash[:12]}: {len(keeper.table)} rows, "
        f"{len(keeper.progress.left_out)} left out; {found.repeated} repeat a person of this "
        f"table, {elsewhere} people are counted elsewhere; "
        f"{found.without_key} rows have no key, {found.wrong_check} a wrong check digit\n",
    )


def _unexpected(found: str) -> MessageError:
    return MessageError(
        "people at several sites are looked for step by step, with the lists of this search",
        found=found,
        remedy="run the same version of unpooled everywhere, and start the study again",
    )
