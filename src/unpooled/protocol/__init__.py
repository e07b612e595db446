"""The protocol shared by all parties: messages, their encoding, stages, and the engine interface."""

import unpooled.maths  # noqa: F401  (enables float64 before any array is created)
