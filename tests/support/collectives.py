"""Collectives in the text of a compiled program."""

import re

import jax

KINDS = ("collective-permute", "all-to-all", "all-gather", "all-reduce", "reduce-scatter")


def collectives(program, *arguments) -> dict[str, int]:
    """How often each kind of collective stands in the compiled program; those that do not are left out."""
    text = jax.jit(program).lower(*arguments).compile().as_text()
    counts = {kind: len(re.findall(rf" {kind}(?:-start)?\(", text)) for kind in KINDS}
    return {kind: count for kind, count in counts.items() if count}
