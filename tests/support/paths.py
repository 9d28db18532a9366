"""Folders of the checkout that tests read."""

from pathlib import Path

SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parent
ROOT = TESTS.parent
REFERENCE = TESTS / "reference"
"""Exact solutions and tables from the literature."""
