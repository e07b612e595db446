"""A site's table: reading, checking, describing and encoding it, and simulated tables."""

from unpooled.data.model_matrix import Arrays, encode, encode_covariates, encode_incomplete
from unpooled.data.sources import Table, read, split
from unpooled.data.stored_columns import describe
from unpooled.data.validation import check, without_unknown

__all__ = [
    "Arrays",
    "Table",
    "check",
    "describe",
    "encode",
    "encode_covariates",
    "encode_incomplete",
    "read",
    "split",
    "without_unknown",
]
