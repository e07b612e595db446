"""The definition of a study, and the schema that all of its sites agree on."""

from unpooled.study.columns import ColumnRoles
from unpooled.study.file import read_study, study_template
from unpooled.study.schema import LARGEST_COUNT, ColumnSchema, Description, Schema, agree, with_indicators
from unpooled.study.study import ALL_SITES, Privacy, Source, Study

__all__ = [
    "ALL_SITES",
    "LARGEST_COUNT",
    "ColumnRoles",
    "ColumnSchema",
    "Description",
    "Privacy",
    "Schema",
    "Source",
    "Study",
    "agree",
    "read_study",
    "study_template",
    "with_indicators",
]
