"""Study files: TOML with sections for study, columns, method and so on, and one [sites.NAME] per site."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from unpooled.errors import Problems, StudyError, nearest
from unpooled.study.study import Source, Study

SECTIONS = ("study", "columns", "subgroups", "privacy", "method", "sites")
STUDY_KEYS = ("name", "seed", "min_sites", "diagnostics", "target", "by_site")

TEMPLATE = """\
# A study for unpooled: its columns, its method and its sites.
# Check it with `unpooled check study.toml`, run it with `unpooled run study.toml --output results/`.

[study]
name = "my-study"
seed = 0                        # the same seed gives the same results
# target = "sample"            # average over the people of the study, not over their population
# diagnostics = false           # leave out the diagnostics: balance, overlap and simpler estimates
# min_sites = 2                 # if a site becomes unreachable, start again with at least this many sites

[columns]
treatment = "treatment"         # 0 = control, 1 = treated
# treated = "drug"              # the treated level; required if the two levels are not 0 and 1
outcome = "outcome"
covariates = ["age", "sex"]     # everything that influences both treatment and outcome; no missing values
# incomplete = ["smoking"]      # covariates with missing values
# missing = "complete cases"    # leave out people with gaps in them, or "indicator"; by default causal_fi
# weight = "survey_weight"      # sampling weights, of the same meaning at every site
# cluster = "ward"              # methods without errors by cluster refuse it
# drop_unknown = true           # leave out people whose treatment or outcome is missing
# id = "nhs_number"             # identifies people, or a list of columns: a person at two sites counts once
# id_check = "mod11"            # the rule of the id's last digit: "mod11" (NHS numbers) or "luhn"
family = "auto"                 # or name the kind: "continuous", "binary" (0/1) or "count" (0, 1, 2, …)
# units = { outcome = "kg" }    # shown in the report

# [subgroups]                   # average effects in groups of people, by complete covariates
# age = [0, 50, 65]             # from 0 to below 50, from 50 to below 65, 65 and over
# sex = "levels"                # a group for each level
# "older women" = "age >= 65 and sex == 'f'"

# [privacy]
# aggregation = "plain"         # let the coordinator see the statistics of single sites, not only their sums
# duplicates = "ignore"         # count people more than once if they are at several sites, despite the id
# max_copies = 1                # or keep a person at up to so many sites

[method]
name = "fedci"

# One section per site. A path is relative to this file.
[sites.north]
path = "north.csv"              # .csv, .tsv, .txt (also .gz) or .parquet
# delimiter = ";"               # if a CSV file does not use a comma

[sites.south]
path = "south.parquet"

# [sites.east]
# url = "postgresql://reader@db.example.org/registry"    # the password may come from PGPASSWORD or ~/.pgpass
# query = "select treatment, outcome, age, sex from visits"
"""


def study_template() -> str:
    """A commented study file to start from."""
    return TEMPLATE


def read_study(path: str | Path) -> Study:
    """Read a study file.

    Parameters
    ----------
    path : str or Path
        A TOML file with the sections ``[study]``, ``[columns]``, ``[method]``, one ``[sites.NAME]`` per site
        and, if wanted, ``[subgroups]`` and ``[privacy]``. `unpooled new study.toml` writes one to start from.
        Its relative paths are relative to the folder of the file.

    Returns
    -------
    Study
        The study, with diagnostics unless the file turns them off.

    Raises
    ------
    StudyError
        If the file cannot be read, or does not describe a valid study.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "study.toml")
    ...     _ = file.write_text(study_template())
    ...     study = read_study(file)
    >>> study.columns.treatment, list(study.sites)
    ('treatment', ['north', 'south'])
    """
    path = Path(path)
    content = _parse(_text(path), path)
    general = content.get("study", {})
    if not isinstance(general, dict):
        raise StudyError(
            "'study' must be a section", found="a single value", remedy="write [study] on a line of its own"
        )
    problems = Problems()
    with problems.collected():
        _require_known(content, SECTIONS, "the study file")
    with problems.collected():
        _require_known(general, STUDY_KEYS, "[study]")
    known = {key: value for key, value in general.items() if key in STUDY_KEYS}
    rest = {key: value for key, value in content.items() if key in SECTIONS and key != "study"}
    with problems.collected():
        study = Study(**{"diagnostics": True, **known}, **rest)
    problems.raise_all()
    folder = path.absolute().parent
    sites = {name: resolved(source, folder, name) for name, source in study.sites.items()}
    return study.model_copy(update={"sites": sites})


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        found, remedy = "no such file", "correct the path, or write a new one with `unpooled new study.toml`"
    except IsADirectoryError:
        found, remedy = "a folder", "give the path of the study file inside it"
    except UnicodeDecodeError:
        found, remedy = "a file that is not UTF-8 text", "save it as UTF-8"
    except OSError:
        found, remedy = "a file that cannot be read", "check that you have permission to read it"
    except ValueError:  # the path contains a NUL
        found, remedy = "an invalid path", "remove the control character from it"
        path = Path(path.as_posix().replace("\0", "?"))
    raise StudyError("the study file must be readable", found=f"{found}: {path}", remedy=remedy)


def _parse(text: str, path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line \d+", str(error))
    where = place[0] if place else "the end of the file"
    raise StudyError(
        "the study file must be valid TOML",
        found=f"a syntax error at {where} of {path}",
        remedy="check there for a missing quote, bracket or equals sign, or a key given twice",
    )


def _require_known(given: dict[str, object], known: tuple[str, ...], place: str) -> None:
    problems = Problems()
    for key in given:
        with problems.collected():
            if key not in known:
                raise StudyError(
                    "every section and key of a study file must be known",
                    found=f"unknown '{key}' in {place}",
                    remedy=nearest(key, known),
                )
    problems.raise_all()


def resolved(source: Source, folder: Path, site: str) -> Source:
    """The same source with relative paths taken from the folder of the study file."""
    if source.path is not None and "://" not in source.path:
        return source.model_copy(update={"path": str(folder / _expanded(source.path, site))})
    sqlite = re.fullmatch(r"(sqlite(?:\+\w+)?:///)(?!/|:memory:|file:)(.+)", source.url or "")
    if sqlite:
        return source.model_copy(update={"url": f"{sqlite[1]}{folder / sqlite[2]}"})
    return source


def _expanded(path: str, site: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise StudyError(
            f"the path of site '{site}' must lead to a file",
            found=f"the home folder of an unknown user: {path}",
            remedy="correct the name after '~', or write the full path",
        ) from None
