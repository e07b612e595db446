"""The question of a study, and the schema that all its sites agree on."""

from unpooled.study.columns import Columns
from unpooled.study.file import read_study, study_template
from unpooled.study.schema import LARGEST_COUNT, Column, Description, Schema, agree
from unpooled.study.study import ALL_SITES, Source, Study

__all__ = [
    "ALL_SITES",
    "LARGEST_COUNT",
    "Column",
    "Columns",
    "Description",
    "Schema",
    "Source",
    "Study",
    "agree",
    "read_study",
    "study_template",
]
