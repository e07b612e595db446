"""What this inference asks of the settings."""

from __future__ import annotations

from typing import Protocol


class Choices(Protocol):
    """Any settings that say these."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of every network's hidden layers."""
        ...

    @property
    def rounds(self) -> int:
        """Most rounds of either stage."""
        ...

    @property
    def learning_rate(self) -> float: ...

    @property
    def monte_carlo(self) -> int:
        """Draws of the weights behind one round's bound."""
        ...

    @property
    def imputations(self) -> int:
        """How often what is missing of a person is drawn under one draw of the weights (the paper's N)."""
        ...

    @property
    def draws(self) -> int: ...

    @property
    def noise_correlation(self) -> float: ...
