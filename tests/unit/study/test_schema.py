"""What the sites agree on, and where they cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unpooled.errors import DataError, SchemaError
from unpooled.study import ColumnRoles, ColumnSchema, Description, agree
from unpooled.study.schema import level_name

COLUMNS = ColumnRoles(treatment="w", outcome="y", covariates=("age",))


def site(kind: Any = "numeric", levels: tuple[str, ...] = (), **arms: int) -> Description:
    counts = {name.removeprefix("_"): count for name, count in arms.items()} or {"0": 5, "1": 5}
    column = ColumnSchema(name="age", kind=kind, levels=levels)
    return Description(rows=sum(counts.values()), arms=counts, columns=(column,))


def agreed(*sites: Description, **changed: Any) -> Any:
    return agree(
        {f"s{k}": described for k, described in enumerate(sites)}, COLUMNS.model_copy(update=changed)
    )


def test_levels_are_the_union_of_all_sites_in_a_fixed_order() -> None:
    schema = agreed(site("categorical", ("c", "b")), site("categorical", ("a",)))
    assert schema.covariates[0].levels == ("a", "b", "c") and schema.features == ("age=b", "age=c")
    assert schema.binary == (True, True)


def test_a_column_is_binary_only_if_it_is_so_everywhere() -> None:
    assert agreed(site("binary"), site("binary")).covariates[0].kind == "binary"
    assert agreed(site("binary"), site("numeric")).covariates[0].kind == "numeric"


def test_text_here_and_numbers_there_is_an_error_that_names_both_sites() -> None:
    with pytest.raises(SchemaError, match="text at site 's1', numbers at site 's0'"):
        agreed(site("numeric"), site("categorical", ("a", "b")))


def test_zero_and_one_need_no_treated_level() -> None:
    schema = agreed(site())
    assert (schema.control, schema.treated) == ("0", "1")


@pytest.mark.parametrize("treated", [0, 0.0, False, "0"])
def test_the_treated_level_may_be_spelt_in_any_way(treated: Any) -> None:
    assert agreed(site(), treated=treated).treated == "0"


def test_other_levels_need_a_treated_level_that_exists() -> None:
    with pytest.raises(DataError, match="`treated"):
        agreed(site(drug=3, none=4))
    with pytest.raises(DataError, match="no site has: 'dryg'"):
        agreed(site(drug=3, none=4), treated="dryg")
    assert agreed(site(drug=3, none=4), treated="drug").control == "none"


def test_one_or_three_levels_over_all_sites_are_an_error() -> None:
    with pytest.raises(DataError, match="3 levels"):
        agreed(site(_0=3, _1=4), site(_0=3, _2=4))
    with pytest.raises(DataError, match="1 levels"):
        agreed(site(_1=4))


def test_a_site_may_have_one_arm_if_there_are_two_over_all_sites() -> None:
    found = agreed(site(_0=4), site(_1=9))
    assert (found.control, found.treated) == ("0", "1")


@pytest.mark.parametrize("one", [1, 1.0, True, "1", np.int8(1), np.float32(1), np.float64(1), np.bool_(True)])
def test_a_level_has_one_spelling_however_it_is_stored(one: object) -> None:
    assert level_name(one) == "1"
