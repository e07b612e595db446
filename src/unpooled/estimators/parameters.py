"""Parameters of estimators, with the interface that scikit-learn's tools expect.

`sklearn.base.BaseEstimator` offers the same, but importing it takes as long as a small fit.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, Self

from unpooled.errors import StudyError, nearest


class WithParameters:
    """A class whose constructor stores each of its parameters under its name, and does nothing else."""

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """The constructor's parameters with their defaults."""
        return {name: one.default for name, one in signature(cls).parameters.items()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of this estimator.

        Parameters
        ----------
        deep : bool, default=True
            Without effect: no parameter is an estimator. It exists for scikit-learn.

        Returns
        -------
        dict
            The values by name.
        """
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters of this estimator.

        Parameters
        ----------
        params : object
            The new values, by name.

        Returns
        -------
        Estimator
            This estimator.

        Raises
        ------
        StudyError
            If there is no parameter with that name.
        """
        for name, value in params.items():
            if name not in (known := self._defaults()):
                raise StudyError(
                    f"a parameter of {type(self).__name__} must be known",
                    found=f"'{name}'",
                    remedy=nearest(name, known),
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """The call that makes this estimator, with the parameters that are not at their defaults."""
        values, defaults = self.get_params(), self._defaults()
        changed = [f"{name}={value!r}" for name, value in values.items() if value != defaults[name]]
        return f"{type(self).__name__}({', '.join(changed)})"
