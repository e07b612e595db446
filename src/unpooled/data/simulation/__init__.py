"""The paper's simulated data: site tables whose true effects are known."""

from unpooled.data.simulation.fedci import NAMES, simulate
from unpooled.data.simulation.simulation import Simulation
from unpooled.data.simulation.writing import write

__all__ = ["NAMES", "Simulation", "simulate", "write"]
