"""The studies approved by this site's custodian, and whether a question belongs to one of them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from unpooled.errors import ApprovalError, ResultsError
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.protocol.messages import Adopt, Question
from unpooled.protocol.table_messages import Summarise
from unpooled.site.private_files import write_whole
from unpooled.study import Study


class Decision(BaseModel):
    """The custodian's decision on one study, and when it was made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    approved: bool
    when: str
    id: str = ""
    """Distinguishes this decision from later ones on the same study."""
    study: dict[str, Any]
    """The study as it was reviewed, without its tables."""
    sites: dict[str, str] | None = None
    """The public identity of each site that may take part, this one included; None if none was given."""

    @property
    def identities(self) -> dict[str, bytes] | None:
        sites = self.sites
        return None if sites is None else {name: bytes.fromhex(one) for name, one in sites.items()}


class Standing(NamedTuple):
    """The decision on a study, or the approved study of the same name and what has changed since."""

    decision: Decision | None = None
    earlier: Decision | None = None
    changed: tuple[str, ...] = ()


_DECISIONS = TypeAdapter(dict[str, Decision])


class Approvals:
    """Decisions by study hash, in a file that is read at every question, so that they apply at once."""

    def __init__(self, path: Path) -> None:
        self._path = Path(path)

    def decide(self, study: Study, *, approved: bool, sites: Mapping[str, bytes] | None = None) -> Decision:
        """Record a decision, replacing an earlier one on the same study.

        `sites` are the public identities of all sites, which the custodian has compared.
        """
        study = methods.with_explicit_settings(study)
        others = {key: decision for key, decision in self._read().items() if key != study.hash}
        when = datetime.now(UTC).isoformat(timespec="seconds")
        decision = Decision(
            approved=approved,
            when=when,
            id=secrets.token_hex(8),
            study=_question(study),
            sites=None if sites is None else {name: identity.hex() for name, identity in sites.items()},
        )
        written = _DECISIONS.dump_json({**others, study.hash: decision}, indent=2)
        write_whole(self._path, written.decode() + "\n")
        return decision

    def standing(self, study: Study) -> Standing:
        """The decision on this study, or on an approved study of the same name."""
        study = methods.with_explicit_settings(study)
        decisions = self._read()
        if study.hash in decisions:
            return Standing(decisions[study.hash])
        approved = [one for one in decisions.values() if one.approved and one.study.get("name") == study.name]
        if not approved:
            return Standing()
        return Standing(None, approved[-1], _changed(approved[-1].study, _question(study)))

    def require(self, study: Study) -> Decision:
        """The approval of this study; a study that was not approved in exactly this form is refused."""
        study = methods.with_explicit_settings(study)
        decision, earlier, changed = self.standing(study)
        if decision is not None and decision.approved:
            return decision
        if decision is not None:
            found = f"'{study.name}' ({study.hash[:12]}), which was refused on {decision.when}"
        elif earlier is not None:
            found = (
                f"a changed version of '{study.name}', which was approved on {earlier.when}; "
                f"changed: {', '.join(changed)}"
            )
        else:
            found = f"'{study.name}' ({study.hash[:12]}), which was never reviewed here"
        raise ApprovalError(
            "a site answers only studies that its custodian has approved",
            found=found,
            remedy="ask the custodian to review it with: unpooled site review STUDY",
        )

    def _read(self) -> dict[str, Decision]:
        try:
            return _DECISIONS.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError):
            raise ResultsError(
                "the site's approvals must be readable",
                found=f"a file that is damaged or cannot be read: {self._path}",
                remedy="restore an undamaged copy, or remove the file and review the studies again",
            ) from None


def permit(study: Study, question: Question) -> None:
    """Refuse a question that does not belong to this study."""
    found = question.mismatch(study)
    if found is None and isinstance(question, Adopt) and not _offered(study, question):
        found = "other settings to adopt"
    if found is None and isinstance(question, Summarise) and question.by_site:
        needed = study.by_site if question.centre is None else methods.compares_sites(study)
        found = None if needed else "numbers of this site that the study does not need"
    if found is not None:
        raise ApprovalError(
            "a question must belong to the approved study",
            found=found,
            remedy="run exactly the study that was approved, or have the new one reviewed",
        )


def _offered(study: Study, question: Adopt) -> bool:
    """Whether the settings are those of the study, or a coarser plan that its method offers."""
    method = methods.find(study.method.name)
    plans = method.plans(methods.settings_of(method, study.method.settings))
    folds = diagnostic_rounds.PLANS if study.diagnostics else (0,)
    offered = any(question.settings == plan.model_dump(mode="json") for plan in plans)
    return offered and question.diagnostics in folds


def _question(study: Study) -> dict[str, Any]:
    return study.model_dump(mode="json", exclude={"sites"})


def _changed(before: dict[str, Any], now: dict[str, Any]) -> tuple[str, ...]:
    """Keys whose values differ, or that only one of the two has."""
    old, new = dict(_flat(before)), dict(_flat(now))
    return tuple(key for key in {**old, **new} if (key in old, old.get(key)) != (key in new, new.get(key)))


def _flat(values: dict[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{place}{key}.")
        else:
            yield f"{place}{key}", value
