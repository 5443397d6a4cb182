"""Broken backends break what they say: their edits still find the text they replace.

No rule: it is about the backends that the fault suite must catch.
"""

from __future__ import annotations

import pytest

from rota_backends.postgres import migrations
from tests.faults.broken import BROKEN
from tests.faults.broken_postgres import EDITS, Edit
from tests.faults.power import FEARS
from tests.faults.rows import FAULTS, QUICK


@pytest.mark.parametrize("edit", [edit for edits in EDITS.values() for edit in edits], ids=lambda edit: edit.function)
def test_an_edit_finds_its_text_in_the_schema(edit: Edit) -> None:
    assert edit.old in migrations.script("rota")


def test_every_broken_backend_has_a_row_it_fears() -> None:
    assert FEARS.keys() == BROKEN.keys()
    assert set(FEARS.values()) <= {fault.name for fault in FAULTS}


def test_the_quick_form_names_rows_of_its_stores() -> None:
    rows = {(fault.name, store) for fault in FAULTS for store in fault.stores}
    assert {(name, store) for store, names in QUICK.items() for name in names} <= rows
