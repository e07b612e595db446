"""The scikit-learn / EconML face of the methods."""

from collections.abc import Callable
from pathlib import Path

from unpooled.estimators.aipw import AIPW
from unpooled.estimators.base import Estimator
from unpooled.estimators.causal_fi import CausalFI
from unpooled.estimators.causal_rff import CausalRFF
from unpooled.estimators.fedci import FedCI
from unpooled.estimators.meta_analysis import MetaAnalysis
from unpooled.estimators.result import Result

ESTIMATORS: dict[str, Callable[..., Estimator]] = {
    "aipw": AIPW,
    "causal_fi": CausalFI,
    "causal_rff": CausalRFF,
    "fedci": FedCI,
    "meta_analysis": MetaAnalysis,
}


def of_study(method: str, settings: dict, seed: int) -> Estimator:
    """The estimator a study file names."""
    from unpooled.methods.method import find, settings_of

    checked = settings_of(find(method), settings)
    return ESTIMATORS[method](seed=seed, **checked.model_dump())


def load(folder: Path | str) -> Estimator:
    """A saved model; `attach` its sites' tables for effects of people."""
    result = Result.load(Path(folder))
    model = of_study(result.study.method.name, result.study.method.settings, result.study.seed)
    model.result_ = result
    return model


__all__ = [
    "ESTIMATORS",
    "AIPW",
    "CausalFI",
    "CausalRFF",
    "Estimator",
    "FedCI",
    "MetaAnalysis",
    "Result",
    "load",
    "of_study",
]
