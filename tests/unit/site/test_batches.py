"""A site whose table is read in batches answers as if it were in memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import unpooled as up
from unpooled.coordinator.agreement import reach_agreement
from unpooled.coordinator.rounds import Conduct
from unpooled.coordinator.run import adoption
from unpooled.data import batches as module
from unpooled.data import encode
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import DataError, LimitRefusal, StudyError
from unpooled.estimators.base import Estimator
from unpooled.methods import method as methods
from unpooled.protocol.messages import Ask, Refusal, Statistics, Vjp
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows
from unpooled.site.answer import answer
from unpooled.site.site import Site, profile_of
from unpooled.site.spool import Spool, batches
from unpooled.study import Study, agree

pytestmark = pytest.mark.filterwarnings("ignore::unpooled.errors.FailedCheckWarning")
ROWS = 1003
COVARIATES = ("a", "b", "flag", "place")


def table(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """`place` has a level that only the last batch has, and `b` is 0 or 1 in the first."""
    rng = np.random.default_rng(seed)
    a, flag = rng.gamma(2.0, size=rows) * 30.0 + 500.0, rng.integers(0, 2, rows)
    b = np.where(np.arange(rows) < rows // 3, rng.integers(0, 2, rows), rng.normal(size=rows))
    place = np.where(np.arange(rows) < rows - 60, np.where(rng.random(rows) < 0.5, "n", "s"), "w")
    w = (rng.random(rows) < 1.0 / (1.0 + np.exp(-(a - 560.0) / 60.0 - 0.5 * flag))).astype(int)
    y = a / 40.0 + b + w * (1.0 + flag) + rng.normal(size=rows)
    return pd.DataFrame({"a": a, "b": b, "flag": flag, "place": place, "w": w, "y": y})


def study(**options: Any) -> Study:
    return Study(treatment="w", outcome="y", covariates=COVARIATES, **options)


@pytest.fixture(params=[150, 334, 1000])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A large table, in 7, 4 or 2 batches."""
    return _stored(request.param, tmp_path, monkeypatch)


@pytest.fixture
def one_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return _stored(334, tmp_path, monkeypatch)


def _stored(size: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "LARGE", 900)
    monkeypatch.setattr(module, "BATCH", size)
    table().to_parquet(folder / "large.parquet", row_group_size=180)
    return folder / "large.parquet"


def both(model: Estimator, path: Path, asked: Study, **options: Any) -> tuple[Any, Any]:
    """The model fitted to a table in memory, and to the same table in batches, beside a small site."""
    small = table(200, seed=1)
    fits = [type(model)(**model.get_params()) for _ in range(2)]
    for fit, large in zip(fits, (table(), path), strict=True):
        fit.fit(asked, {"large": large, "small": small}, **options)
    rows = [fit.sites_["large"].adopted.rows for fit in fits]  # type: ignore[union-attr]
    assert [type(one) for one in rows] == [Rows, Spool]
    return fits[0], fits[1]


def same(left: object, right: object, tolerance: float = 1e-10) -> None:
    ours, theirs = (jax.tree.flatten(one) for one in (left, right))
    assert ours[1] == theirs[1]
    for one, other in zip(ours[0], theirs[0], strict=True):
        np.testing.assert_allclose(
            np.asarray(one, float), np.asarray(other, float), rtol=tolerance, atol=1e-11
        )


@pytest.mark.parametrize("estimator", ["aipw", "ipw", "difference"])
def test_aipw_is_the_same_in_batches(path: Path, estimator: str) -> None:
    whole, parts = both(up.AIPW(estimator=estimator, seed=3), path, study())
    pd.testing.assert_frame_equal(whole.estimates(), parts.estimates(), rtol=1e-10)
    np.testing.assert_allclose(whole.ate_draws(), parts.ate_draws(), rtol=1e-10)
    assert whole.result_.schema == parts.result_.schema
    pd.testing.assert_frame_equal(whole.checks(), parts.checks(), rtol=1e-10)


def test_meta_analysis_and_diagnostics_are_the_same_in_batches(one_path: Path) -> None:
    whole, parts = both(up.MetaAnalysis(seed=3), one_path, study(diagnostics=True))
    pd.testing.assert_frame_equal(whole.estimates(), parts.estimates(), rtol=1e-10)
    ours, theirs = (fit.result_.diagnostic_statistics for fit in (whole, parts))
    for name in ("summed", "per_site", "site_estimates", "site_errors", "aipw", "ipw", "difference"):
        same(getattr(ours, name), getattr(theirs, name), 1e-9)
    assert np.any(theirs.per_site["shown"] == 0.0)  # a bin with few people is withheld in both


def test_the_profile_has_the_moments_of_the_whole_table(path: Path) -> None:
    site = open_sites(study(), {"s": path}, NONE)["s"]
    schema = agree({"s": site.described}, site.columns)  # type: ignore[dict-item]
    found, arrays = profile_of(site, schema), encode(site.frame, site.columns, schema, site="s")
    values = np.column_stack([arrays.covariates, arrays.outcome])  # type: ignore[list-item]
    np.testing.assert_allclose(found.mean, values.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.cross, ROWS * np.cov(values.T, bias=True), rtol=1e-10, atol=1e-9)
    skewness = found.powers[1] / ROWS / found.sd**3
    np.testing.assert_allclose(skewness, stats.skew(values), rtol=1e-10)
    np.testing.assert_allclose(found.powers[2] / ROWS / found.sd**4, stats.kurtosis(values) + 3.0, rtol=1e-10)
    np.testing.assert_array_equal(found.treatment, arrays.treatment == 1.0)
    assert found.values[:2] == (None, None)  # `b` has two values in the first batch only
    assert (
        found.cells["place=w"] == 60 and found.cells["place (first level)"] == (table()["place"] == "n").sum()
    )
    for arm in (0, 1):
        own = arrays.covariates[arrays.treatment == arm]
        np.testing.assert_array_equal(found.arm_ranges[:, arm], [own.min(axis=0), own.max(axis=0)])


def adopted(source: Any, asked: Study, limits: Limits = NONE) -> Site:
    sites = open_sites(asked, {"s": source}, limits)

    def procedure() -> Any:
        agreement = yield from reach_agreement(asked)
        yield adoption(asked, agreement.schema, agreement.scaling)

    for _ in Conduct(procedure(), InProcess(sites)):
        pass
    return sites["s"]


AIPW = methods.with_settings(study(), "aipw", {})


def test_folds_do_not_depend_on_the_batches(path: Path) -> None:
    whole, parts = adopted(table(), AIPW).adopted, adopted(path, AIPW).adopted
    assert whole is not None and parts is not None
    assert isinstance(whole.rows, Rows) and isinstance(parts.rows, Spool)

    def columns(rows: Rows) -> np.ndarray:
        assert rows.more_folds is not None
        parts = (rows.fold, rows.more_folds.T, rows.treatment, rows.outcome, rows.covariates)
        return np.column_stack(parts)

    found = [columns(one)[np.asarray(one.present) > 0.0] for one in batches(parts.rows)]
    # The scaling is the same but for rounding; folds and arms are whole numbers.
    np.testing.assert_allclose(np.concatenate(found), columns(whole.rows)[:ROWS], rtol=0.0, atol=1e-12)
    assert {one.present.shape for one in batches(parts.rows)} == {(parts.rows.length,)}


def test_with_limits_every_batch_is_protected_by_its_own_people(one_path: Path) -> None:
    frame = table().assign(a=lambda t: t["a"].where(t.index != 5, 5000.0))
    frame.to_parquet(one_path)
    limits = Limits(share=np.inf)
    site = adopted(one_path, AIPW, limits)
    assert site.adopted is not None and isinstance(site.adopted.rows, Spool)
    assert site.adopted.people is not None and site.adopted.people >= limits.cell
    for rows in batches(site.adopted.rows):
        assert rows.least == limits.cell
        values = np.asarray(rows.covariates)[np.asarray(rows.present) > 0.0, 0]
        deviation = (values - np.median(values)) ** 2
        assert deviation.sum() > limits.cell * deviation.max()
    fit = up.AIPW(seed=3).fit(study(), {"large": one_path}, limits=limits)
    plain = up.AIPW(seed=3).fit(study(), {"large": frame})
    assert abs(fit.ate() - plain.ate()) < 3.0 * plain.estimates()["standard_error"]["large"]


def test_a_column_that_one_batch_leaves_out_is_left_out_of_all(one_path: Path) -> None:
    few = np.r_[np.ones(7), np.zeros(396), np.ones(300), np.zeros(300)].astype(int)
    table().assign(flag=few).to_parquet(one_path)
    site = adopted(one_path, AIPW, Limits(share=np.inf))
    assert site.adopted is not None and isinstance(site.adopted.rows, Spool)
    assert "flag" in site.adopted.left_out
    column = site.adopted.schema.features.index("flag")
    assert all(np.all(np.asarray(rows.covariates)[:, column] == 0.0) for rows in batches(site.adopted.rows))


def test_limits_are_checked_over_all_batches(one_path: Path) -> None:
    table().assign(place=np.where(np.arange(ROWS) % 300 == 0, "rare", "common")).to_parquet(one_path)
    with pytest.raises(LimitRefusal, match="at least 5 people"):
        up.AIPW().fit(study(), {"large": one_path}, limits=Limits())


def test_other_methods_read_the_table_whole_if_it_fits(
    one_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fedci = methods.with_settings(study(), "fedci", {"structure": "isotropic"})
    site = adopted(one_path, fedci)
    assert site.adopted is not None and isinstance(site.adopted.rows, Rows)
    monkeypatch.setattr(module, "memory_of_machine", lambda: 10_000)
    with pytest.raises(DataError, match="must fit in memory") as error:
        up.FedCI(structure="isotropic").fit(study(), {"large": one_path})
    assert "AIPW" in error.value.remedy
    up.AIPW().fit(study(), {"large": one_path})


def test_effects_of_people_are_refused(one_path: Path) -> None:
    model = up.AIPW().fit(study(), {"large": one_path})
    for ask in (lambda: model.ite("large"), lambda: model.effect(table(5), site="large")):
        with pytest.raises(StudyError, match="in memory"):
            ask()
    model.attach({"large": table(400)})
    assert len(model.effect(table(5), site="large")) == 5


def test_derivatives_are_refused(one_path: Path) -> None:
    site = adopted(one_path, AIPW)
    parameters = Parameters(fixed={"without": np.array([-1]), "draw": np.array([0])})
    reply = answer(site, Ask("outcome", parameters))
    assert isinstance(reply, Statistics)
    refusal = answer(site, Vjp("outcome", parameters, reply))
    assert isinstance(refusal, Refusal) and "derivatives" in refusal.expected


def _open_files() -> list[str]:
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return [os.readlink(link) for link in links if os.path.exists(link) or os.path.islink(link)]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder


def test_temporary_files_have_no_name_and_are_gone(one_path: Path, temporary: Path) -> None:
    model = up.AIPW().fit(study(diagnostics=True), {"large": one_path})
    assert list(temporary.iterdir()) == []
    if os.path.isdir("/proc/self/fd"):
        assert sum(str(temporary) in name for name in _open_files()) == 2
        del model
        assert not any(str(temporary) in name for name in _open_files())


def test_a_full_disk_is_reported(one_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _: object) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    monkeypatch.setattr("unpooled.site.site.Spool", lambda: Spool(file=Full()))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="temporary files"):
        up.AIPW().fit(study(), {"large": one_path})


def test_values_are_counted_over_all_batches(one_path: Path) -> None:
    """`a` takes five values in each batch and twenty altogether, `b` three everywhere."""
    person = np.arange(ROWS)
    frame = table().assign(a=person % 5 + 10.0 * (person // 251), b=person % 3 + 0.5)
    frame.to_parquet(one_path)
    site = open_sites(study(), {"s": one_path}, NONE)["s"]
    found = profile_of(site, agree({"s": site.described}, site.columns))  # type: ignore[dict-item]
    assert found.values[0] is None
    assert found.values[1] == frame["b"].value_counts().to_dict()
