"""Robustness checks: refit a study where the effect is known or where the estimate should not change."""
