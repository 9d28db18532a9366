"""The files of every kind of instrument have the variables, dimensions and attributes that other tools rely on."""

import json

import pytest
from instrument_descriptions import CASES, REFERENCE, descriptions


@pytest.mark.parametrize("name", CASES)
def test_files_of_every_kind_are_described_as_before(name, tmp_path):
    wanted = json.loads(REFERENCE.read_text(encoding="utf-8"))[name]
    assert descriptions(name, tmp_path) == wanted, (
        "if meant, write them by `python tests/support/instrument_descriptions.py`"
    )
