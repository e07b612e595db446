"""A site's table: reading, checking, describing and encoding it, and simulated tables."""

from unpooled.data.batches import Batches, by_completeness, frames, whole
from unpooled.data.model_matrix import Arrays, encode, encode_covariates, encode_incomplete
from unpooled.data.sources import Table, read, read_or_batches, read_some, split
from unpooled.data.stored_columns import describe, described_together
from unpooled.data.validation import check, check_columns, check_together, without_unknown

__all__ = [
    "Arrays",
    "Batches",
    "Table",
    "by_completeness",
    "check",
    "check_columns",
    "check_together",
    "describe",
    "described_together",
    "encode",
    "encode_covariates",
    "encode_incomplete",
    "frames",
    "read",
    "read_or_batches",
    "read_some",
    "split",
    "whole",
    "without_unknown",
]
