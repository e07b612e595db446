"""What all parties agree on: messages, their bytes, stages, and what an engine must do."""

import unpooled.maths  # noqa: F401  (float64 before any array is made)
