"""Docstrings and messages read as plain English: first words, a noun in the first sentence, one word for a thing."""

import ast
import re

from paths import ROOT

MODULES = sorted((ROOT / "simjax").rglob("*.py"))
RIDDLES = {"Of", "As", "Those", "What", "Where", "Which", "Whether", "How"}

# Words that name nothing: pronouns, articles, verbs of every trade, and nouns such as "thing" and "part".
EMPTY = """
a about add after again all alone another also among an and any are as asks at be before begin beside both by call
can case check come different each either end equal every few find first for form found from get give given go have
hold holds how if in into is it its itself keep kind known last make made many may more most name names need needed
neither new next no not note of off on one ones only or other others out own part parts place places put raise read
refuse rest return right said same say see seen set sort stand such take taken tell than that the them then there
these they thing things this those to told together two use used was way what whatever when where which who whole
whose with without write written wrong
"""
FORMULA = re.compile(r"[=^|*/<(+\d]|\b[A-Za-z]\b(?<![aA])")
SENTENCE_END = re.compile(r"(?<=\.)\s(?=[A-Z])")


def docstrings(source):
    """Line and text of every docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        text = ast.get_docstring(node) if isinstance(node, documented) else None
        if text:
            yield node.body[0].lineno, text


def first_words(source):
    """Line and first word of every docstring."""
    for line, text in docstrings(source):
        yield line, re.split(r"\W", text.lstrip("`"), maxsplit=1)[0]


def without_a_noun(source):
    """Line and first sentence of docstrings that name nothing; formulas and names in backticks name something."""
    for line, text in docstrings(source):
        sentence = SENTENCE_END.split(" ".join(text.split("\n\n")[0].split()))[0]
        words = {word.lower() for word in re.findall(r"[A-Za-z]+", sentence)}
        if "`" not in sentence and not FORMULA.search(sentence) and words <= {*EMPTY.split()}:
            yield line, sentence


def lines_of(find):
    """Places in all modules, each as file:line: word, of what `find` yields of a source as (line, word)."""
    sources = {module.relative_to(ROOT): module.read_text(encoding="utf-8") for module in MODULES}
    return [f"{module}:{line}: {word}" for module, source in sources.items() for line, word in find(source)]


def test_docstrings_begin_with_a_noun_or_a_verb():
    wrong = lines_of(lambda source: [(line, word) for line, word in first_words(source) if word in RIDDLES])
    assert not wrong, "a docstring begins with a noun phrase or a verb"


def test_first_sentences_name_something():
    assert not lines_of(without_a_noun), "name the thing, then say what it does"


def test_what_was_given_is_got():
    numbered = lines_of(
        lambda source: [(n, "came") for n, line in enumerate(source.splitlines(), 1) if re.search(r"\bcame\b", line)]
    )
    assert not numbered, "write 'got' for 'came'"


def test_the_pattern_finds_them():
    assert list(first_words('def f():\n    """Of a velocity."""')) == [(2, "Of")]
    assert list(first_words('"""`of_particles`, as said."""')) == [(1, "of_particles")]
    for riddle in ("The same of the other part.", "Each with a name of its own.", "Names that can be written."):
        assert list(without_a_noun(f'def f():\n    """{riddle}"""')) == [(2, riddle)]
    for clear in ("The part at `place`.", "Cells of this block.", "u - grad(p)."):
        assert not list(without_a_noun(f'def f():\n    """{clear}"""'))
