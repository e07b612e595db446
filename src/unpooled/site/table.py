"""One site's table, read and checked before anything is asked of it."""

from __future__ import annotations

from unpooled.data import Table, check, read, without_unknown
from unpooled.disclosure.limits import Limits
from unpooled.errors import StudyError
from unpooled.methods.method import find
from unpooled.site.site import Site
from unpooled.study import Study


def open_site(name: str, source: Table, study: Study, limits: Limits) -> Site:
    """The site as it stands before a study: its rows, the roles of their columns, its limits."""
    require_complete_columns(study)
    frame = without_unknown(read(source, study.columns, site=name), study.columns)
    check(frame, study.columns, site=name)
    return Site(name, frame, study.columns, limits)


def require_complete_columns(study: Study) -> None:
    """A confounder that a method would leave aside must not be left aside silently."""
    if study.columns.incomplete and not find(study.method.name).takes_incomplete:
        raise StudyError(
            f"the method '{study.method.name}' uses complete columns only",
            found=f"incomplete: {', '.join(study.columns.incomplete)}",
            remedy="leave these columns out, complete them first, or choose a method for incomplete ones",
        )
