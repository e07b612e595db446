"""Causal effects from data that cannot be pooled.

Names are imported when first used, so that `import unpooled` and the command line's help stay fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unpooled.data import split
    from unpooled.diagnostics.expected_cost import expected_cost
    from unpooled.diagnostics.stand_ins import Size
    from unpooled.diagnostics.study_diagnostics import diagnose
    from unpooled.disclosure.limits import Limits
    from unpooled.engines.nvflare.engine import Remote
    from unpooled.errors import UnpooledError
    from unpooled.estimators import (
        AIPW,
        BoostedArms,
        CausalFI,
        CausalForest,
        CausalRFF,
        FedCI,
        MetaAnalysis,
        SuperLearner,
        load,
    )
    from unpooled.estimators.policy.policy import policy
    from unpooled.estimators.robustness.refute import refute
    from unpooled.estimators.sensitivity import sensitivity
    from unpooled.report import plot
    from unpooled.study import Study, read_study

__version__ = "0.1.0"

_HOMES = {
    "AIPW": "unpooled.estimators",
    "BoostedArms": "unpooled.estimators",
    "CausalFI": "unpooled.estimators",
    "CausalForest": "unpooled.estimators",
    "CausalRFF": "unpooled.estimators",
    "FedCI": "unpooled.estimators",
    "Limits": "unpooled.disclosure.limits",
    "MetaAnalysis": "unpooled.estimators",
    "Remote": "unpooled.engines.nvflare.engine",
    "Size": "unpooled.diagnostics.stand_ins",
    "Study": "unpooled.study",
    "SuperLearner": "unpooled.estimators",
    "UnpooledError": "unpooled.errors",
    "load": "unpooled.estimators",
    "diagnose": "unpooled.diagnostics.study_diagnostics",
    "expected_cost": "unpooled.diagnostics.expected_cost",
    "policy": "unpooled.estimators.policy.policy",
    "read_study": "unpooled.study",
    "refute": "unpooled.estimators.robustness.refute",
    "sensitivity": "unpooled.estimators.sensitivity",
    "split": "unpooled.data",
}

__all__ = [
    "AIPW",
    "BoostedArms",
    "CausalFI",
    "CausalForest",
    "CausalRFF",
    "FedCI",
    "Limits",
    "MetaAnalysis",
    "Remote",
    "Size",
    "Study",
    "SuperLearner",
    "UnpooledError",
    "load",
    "diagnose",
    "expected_cost",
    "plot",
    "policy",
    "read_study",
    "refute",
    "sensitivity",
    "split",
]


def __getattr__(name: str) -> object:
    if name == "plot":  # a module: nothing of it is imported by another name
        return import_module("unpooled.report.plot")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'unpooled' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
