"""Equations as MathML, which browsers show without scripts: an extension of Markdown."""

import html
import re

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

MARKED = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


class Equations(Postprocessor):
    """Equations between dollars, which the extension arithmatex has marked, in MathML."""

    def run(self, text: str) -> str:
        return MARKED.sub(_equation, text)


class EquationsExtension(Extension):
    """Equations after all else, when what other extensions have put aside is in the text again."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.postprocessors.register(Equations(md), "equations", 0)


def makeExtension(**options) -> EquationsExtension:
    """The extension, by the name that Markdown looks for."""
    return EquationsExtension(**options)


def _equation(found: re.Match) -> str:
    latex, kind = html.unescape(found[2]).strip(), "block" if found[1] == "div" else "inline"
    try:
        return f'<{found[1]} class="equation">{convert(latex, display=kind)}</{found[1]}>'
    except Exception as error:  # latex2mathml has many kinds, without a word in them
        raise ValueError(f"expected LaTeX that latex2mathml reads, got ({type(error).__name__}): {latex}") from error
