"""Nodes of a mesh around cells of particles along one axis, of which there need not be a whole number in a cell.

Blocks of devices have whole numbers of both, so that what is here is the same for all of them.
"""

import dataclasses
import functools
import math
from fractions import Fraction

import numpy as np


@dataclasses.dataclass(frozen=True)
class Nodes:
    """Nodes that particles of a cell reach along one axis.

    cells, nodes: of a block. reach: how far particles reach, and may lie outside their cells, in mesh cells. offset:
    where nodes lie in their mesh cells. closed: whether what lies at the far end of the reach counts.
    """

    cells: int
    nodes: int
    reach: float
    offset: float
    closed: bool

    @property
    def per_cell(self) -> Fraction:
        """Mesh cells in a cell."""
        return Fraction(self.nodes, self.cells)

    @property
    def whole(self) -> bool:
        """Tell whether all cells begin with a mesh cell."""
        return self.nodes % self.cells == 0

    def first(self, cell: int) -> int:
        """The mesh cell in which a cell of the block, or one beyond its ends, begins."""
        return cell * self.nodes // self.cells

    def shifts(self) -> np.ndarray:
        """Lengths into that mesh cell at which each cell begins, `(cells,)`."""
        return np.array([float(cell * self.per_cell - self.first(cell)) for cell in range(self.cells)])

    @functools.cached_property
    def around(self) -> range:
        """Nodes within reach of a cell, counted from the mesh cell in which it begins; one range for all cells."""
        reach, offset = Fraction(self.reach), Fraction(self.offset)
        latest = max(cell * self.per_cell - self.first(cell) for cell in range(self.cells))
        first, last = -reach - offset, latest + self.per_cell + reach - offset
        if self.closed:
            return range(math.ceil(first), math.floor(last) + 1)
        return range(math.floor(first) + 1, math.ceil(last))

    @property
    def beyond(self) -> int:
        """Nodes beyond an end of the block that its cells reach."""
        return max(0, -self.around.start, self.first(self.cells - 1) + self.around.stop - self.nodes)

    def read(self) -> np.ndarray:
        """Nodes that entries of `around` are for each cell, `(around, cells)`, `beyond` nodes before the block's."""
        first = np.array([self.first(cell) for cell in range(self.cells)])
        return (self.beyond + np.array(self.around)[:, None] + first).astype(np.int32)

    # ------------------------------------------------------------------ what cells of neighbours reach

    @property
    def cells_beyond(self) -> int:
        """Cells beyond an end of the block that reach its nodes."""
        count = 0
        while self._reaches(-count - 1) or self._reaches(self.cells + count):
            count += 1
        return count

    def _reaches(self, cell: int) -> bool:
        first = self.first(cell)
        return first + self.around.stop > 0 and first + self.around.start < self.nodes

    @property
    def of_lower(self) -> range:
        """Entries of `around` that cells below the block share with it."""
        return range(max(0, -self.first(-1) - self.around.start), len(self.around))

    @property
    def of_upper(self) -> range:
        """Entries of `around` that cells above the block share with it."""
        return range(0, min(len(self.around), max(0, -self.around.start)))

    def gathered(self) -> np.ndarray:
        """Terms of the sum on each node, `(terms, nodes)`: numbers of pairs of an entry of `around` and a cell.

        Pairs are numbered by entry, then by cell: those of the block, then those of `of_lower` and of `of_upper` with
        `cells_beyond` cells each; one more than the last stands for none. Each node's terms are in the order of cells.
        """
        beyond = self.cells_beyond
        parts = (
            (range(self.cells), range(len(self.around))),
            (range(-beyond, 0), self.of_lower),
            (range(self.cells, self.cells + beyond), self.of_upper),
        )
        terms: list[list[tuple[int, int]]] = [[] for _ in range(self.nodes)]
        number = 0
        for cells, entries in parts:
            for entry in entries:
                for cell in cells:
                    node = self.first(cell) + self.around[entry]
                    if 0 <= node < self.nodes:
                        terms[node].append((cell, number))
                    number += 1
        most = max(len(of_node) for of_node in terms)
        table = np.full((most, self.nodes), number, np.int32)
        for node, of_node in enumerate(terms):
            table[: len(of_node), node] = [pair for _, pair in sorted(of_node)]
        return table
