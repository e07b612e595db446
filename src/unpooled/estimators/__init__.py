"""The methods as estimators, with the interface of scikit-learn and EconML."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from unpooled.coordinator.result import StudyResult
from unpooled.estimators.base import Estimator
from unpooled.estimators.boosted_arms import BoostedArms
from unpooled.estimators.causal_fi import CausalFI
from unpooled.estimators.causal_forest import CausalForest
from unpooled.estimators.causal_rff import CausalRFF
from unpooled.estimators.comparators import AIPW, MetaAnalysis
from unpooled.estimators.fedci import FedCI
from unpooled.estimators.super_learner import SuperLearner
from unpooled.study import Study

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)

ESTIMATORS: dict[str, Callable[..., Estimator]] = {kind.method: kind for kind in Estimator.__subclasses__()}
"""The estimator of each method: every subclass of `Estimator` in a module of this folder."""


def of_study(study: Study) -> Estimator:
    """The estimator of the method that a study names, with its settings and seed."""
    from unpooled.methods.method import find, settings_of

    checked = settings_of(find(study.method.name), study.method.settings)
    return ESTIMATORS[study.method.name](seed=study.seed, **checked.model_dump())


def load(folder: Path | str) -> Estimator:
    """Load a saved model.

    Parameters
    ----------
    folder : path
        The folder that `save` wrote.

    Returns
    -------
    Estimator
        The fitted estimator, without tables. Call `attach` before `effect` or `ite`.

    Raises
    ------
    ResultsError
        If the folder is not a saved model.

    Examples
    --------
    >>> load("no-such-folder")
    Traceback (most recent call last):
    ...
    unpooled.errors.ResultsError: a model folder must hold study.json and model.msgpack
      found: no-such-folder is not a saved model
      try:   pass a folder written by model.save(...)
    """
    result = StudyResult.load(Path(folder))
    model = of_study(result.study)
    model.result_ = result
    return model


__all__ = [
    "ESTIMATORS",
    "AIPW",
    "BoostedArms",
    "CausalFI",
    "CausalForest",
    "CausalRFF",
    "Estimator",
    "FedCI",
    "MetaAnalysis",
    "SuperLearner",
    "load",
    "of_study",
]
