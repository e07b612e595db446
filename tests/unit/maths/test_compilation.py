"""Programs are compiled with the effort that their use asks for, and give what the function gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from unpooled.maths import compilation
from unpooled.maths.compilation import SMALL, Program, effort_of, options


@pytest.mark.parametrize(
    ("numbers", "often", "effort"), [(10, False, "low"), (10, True, "high"), (SMALL + 1, False, "high")]
)
def test_programs_that_run_often_or_on_much_data_are_worth_more_effort(
    numbers: int, often: bool, effort: str
) -> None:
    assert effort_of({"rows": np.zeros(numbers), "name": "no array"}, often=often) == effort


@pytest.mark.parametrize("often", [True, False])
def test_a_program_gives_what_its_function_gives(often: bool) -> None:
    def function(name: str, x: jnp.ndarray) -> jnp.ndarray:
        return x @ x.T + len(name)

    x = np.arange(6.0).reshape(2, 3)
    found = Program(function, often=often, static_argnums=0)("abc", x)
    np.testing.assert_allclose(found, x @ x.T + 3.0, rtol=1e-15)


def test_options_are_those_of_the_effort_and_left_out_if_the_compiler_refuses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (
        options("low")["xla_backend_optimization_level"] < options("high")["xla_backend_optimization_level"]
    )
    monkeypatch.setitem(compilation._OPTIONS, "low", {"no_such_option": True})
    assert options.__wrapped__("low") == {}


COUNTING = """
from jax import monitoring

compiled = []
monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None
)
import unpooled as up
from oracle.world import STUDY, frames

{fit}
print(len(compiled))
"""
FITS = {
    "FedCI": 'up.FedCI(structure="isotropic", draws=40).fit(STUDY, frames())',
    "CausalFI": """
study = up.Study(treatment="w", outcome="y", covariates=["b", "c"], incomplete=["a"])
tables = frames({"north": 30, "south": 32})
for table in tables.values():
    table.loc[table.index[::4], "a"] = float("nan")
up.CausalFI(structure="linear", draws=20, sweeps=4, most_sweeps=4, importance=False).fit(study, tables)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "fewest", "most"),
    [
        # Ridge, statistics, their derivative, value, weights, prior and effects; and a few single operations.
        ("FedCI", 6, 16),
        # The sums, the effects, and the trial of the compiler's options; the coordinator compiles nothing.
        ("CausalFI", 2, 3),
    ],
)
def test_a_first_fit_compiles_few_programs(method: str, fewest: int, most: int, tmp_path: Path) -> None:
    tests = Path(__file__).parents[2]
    here = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")]),
    }
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COUNTING.format(fit=FITS[method])],
        env=here, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert fewest <= int(told.stdout) <= most
