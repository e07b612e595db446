"""What a report needs of a fitted model: every estimator has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from unpooled.study import Study


class Outcome(Protocol):
    """What a study left: `unpooled.estimators.Result`."""

    @property
    def study(self) -> Study: ...
    @property
    def sites(self) -> tuple[str, ...]: ...
    @property
    def counts(self) -> tuple[int, ...]: ...
    @property
    def context(self) -> Any: ...
    @property
    def diagnostics(self) -> dict[str, Any]: ...
    @property
    def cost(self) -> dict[str, Any]: ...


class Model(Protocol):
    """A fitted estimator."""

    @property
    def result_(self) -> Outcome: ...

    def ate(self, site: str | None = None) -> float: ...
    def ate_interval(self, site: str | None = None, *, alpha: float = 0.05) -> tuple[float, float]: ...
    def ate_draws(self, site: str | None = None) -> np.ndarray: ...
    def summary(self, *, alpha: float = 0.05) -> pd.DataFrame: ...
    def save(self, folder: Path | str) -> Path: ...
