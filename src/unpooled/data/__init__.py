"""What a site holds: reading its table, checking it, describing it, and turning it into arrays."""

from unpooled.data.checking import check, without_unknown
from unpooled.data.describing import describe
from unpooled.data.encoding import Arrays, encode, encode_covariates, encode_incomplete
from unpooled.data.reading import Table, read
from unpooled.data.splitting import split

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
