"""What a site holds: reading its table, checking it, describing it, and turning it into arrays."""

from unpooled.data.description import describe
from unpooled.data.model_matrix import Arrays, encode, encode_covariates, encode_incomplete
from unpooled.data.partition import split
from unpooled.data.sources import Table, read
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
