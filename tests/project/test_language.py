"""Docstrings and messages read as plain English: their first words, and one word for what was given."""

import ast
import re

from paths import ROOT

MODULES = sorted((ROOT / "simjax").rglob("*.py"))
RIDDLES = {"Of", "As", "Those", "What", "Where", "Which", "Whether", "How"}


def first_words(source):
    """Line and first word of every docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        text = ast.get_docstring(node) if isinstance(node, documented) else None
        if text:
            yield node.body[0].lineno, re.split(r"\W", text.lstrip("`"), maxsplit=1)[0]


def lines_of(find):
    """Places in all modules, each as file:line: word, of what `find` yields of a source as (line, word)."""
    sources = {module.relative_to(ROOT): module.read_text(encoding="utf-8") for module in MODULES}
    return [f"{module}:{line}: {word}" for module, source in sources.items() for line, word in find(source)]


def test_docstrings_begin_with_a_noun_or_a_verb():
    wrong = lines_of(lambda source: [(line, word) for line, word in first_words(source) if word in RIDDLES])
    assert not wrong, "a docstring begins with a noun phrase or a verb"


def test_what_was_given_is_got():
    numbered = lines_of(
        lambda source: [(n, "came") for n, line in enumerate(source.splitlines(), 1) if re.search(r"\bcame\b", line)]
    )
    assert not numbered, "write 'got' for 'came'"


def test_the_pattern_finds_them():
    assert list(first_words('def f():\n    """Of a velocity."""')) == [(2, "Of")]
    assert list(first_words('"""`of_particles`, as said."""')) == [(1, "of_particles")]
