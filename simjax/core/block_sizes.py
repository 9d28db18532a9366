"""Sentences about sizes of blocks that a grid cannot be cut into."""

from simjax.grid import AXES


def thicker_blocks(axis: int, cells: int, needed: int) -> str:
    """Say what to write so that a block has at least `needed` of the `cells` along an axis."""
    name = f"mesh.{AXES[axis]}"
    fitting = max((d for d in range(1, cells // needed + 1) if cells % d == 0), default=0)
    return f"use {name}={fitting} or a finer grid" if fitting else f"use at least {needed} cells"


def not_divisible(axis: int, cells: int, name: str, count: int) -> str:
    """Describe that `cells` cannot be cut into `count` equal blocks, and sizes that can."""
    below, above = cells - cells % count, cells - cells % count + count
    sizes = f"{below} or {above}" if below else f"{above}"
    divisors = max(d for d in range(1, count + 1) if cells % d == 0)
    return (
        f"Grid.shape[{axis}]={cells} is not divisible by mesh axis '{name}' of {count}; use {sizes}, "
        f"or mesh.{AXES[axis]}={divisors}."
    )
