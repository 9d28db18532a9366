"""A certificate of a gradient: whether it is the derivative of the program, in either mode, on a mesh, checkpointed."""

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from simjax.certificate.derivative_programs import CompiledObjective, Variant
from simjax.certificate.directions import Unknowns, dot, moved, natural_sizes, rough_directions, smooth_direction
from simjax.certificate.remainder import Remainder, computational_noise, taylor_remainder
from simjax.errors import ConfigurationError, NumericalError
from simjax.stepping.checkpointing.plan import Checkpoint

# The plan that compiles fastest; of large models, keeping all intermediate values takes four times as long.
REFERENCE: Checkpoint = "every_step"
DIRECTIONS = 8
# One device and many differ by the order of sums, carried through the run and back; plans by the compiler's choice of
# what to contract in the loops of each; the two modes by the order in which factors of the same products are applied.
MESH_BOUND, PLAN_BOUND, MODE_BOUND = 1e-10, 1e-11, 1e-11
SLOPE, SLOPE_BOUND = 2.0, 0.05
# Differences of fourth order would be best with a step of the noise to the power of 1/5. A shorter one crosses fewer of
# the kinks of a scheme; rounding is then the noise to the power of 3/5, 1e-9 or so, and truncation nothing beside it.
DIFFERENCE_POWER = 0.4
COSINE_BOUND, DIFFERENCE_BOUND = 1e-6, 1e-6
# Where a kink is too near to the start, the same is measured that far beside it, in units of the unknowns' sizes.
BESIDE, STARTS = 1e-3, 4
# Of the mean size of the derivative on a way across a cell, where a rule that ends at once leaves a tenth and more; and
# at how many places the derivative is asked, at first and at most, closer where it changes fast. Of a flow around a
# body it has hundreds of kinks within a cell.
ACROSS_BOUND, FIRST_PLACES, PLACES = 0.01, 26, 600
# A change of the value within so short a piece of the way is a jump, which more places do not resolve.
JUMP = 2.0**-16
# Residuals of pieces with kinks have either sign: so many times the root of the sum of their squares is what they are
# likely to be together.
DOUBT = 3.0


@dataclass(frozen=True)
class Objective:
    """A scalar function of named unknowns, in every form in which its gradient is to be the same.

    start: unknown -> tree of float64 arrays, at which to differentiate. An unknown of scalars only is a number, any
        other one a field.
    on: `on(sizes, plan)` is the function `unknowns -> scalar` on a mesh of those sizes ({"x": 2, "y": 4}; {} is one
        device) and with that checkpoint plan, to be compiled and differentiated.
    meshes: sizes to compare with one device.
    plans: checkpoint plans to compare with "every_step".
    across: name -> a tree like `start`, along which a shape moves by a cell from half a cell before the start on.
    direction: a tree like `start`, along which the Taylor expansion for all unknowns together is followed; by default
        smooth, pseudo-random and of each unknown's own size.
    notes: sentences about the objective for the reader of its certificate.
    untested: what should have been compared -> why it could not be; nothing is certified with it.
    """

    start: Unknowns
    on: Callable[[Mapping[str, int], Checkpoint], Callable[[Unknowns], Array]]
    meshes: tuple[Mapping[str, int], ...] = ()
    plans: tuple[Checkpoint, ...] = ()
    direction: Unknowns | None = None
    across: Mapping[str, Unknowns] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    untested: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        for path, leaf in jax.tree.leaves_with_path(self.start):
            found = getattr(leaf, "dtype", type(leaf).__name__)
            if found != np.float64:
                raise ConfigurationError(
                    f"start{jax.tree_util.keystr(path)}: expected an array of float64, for which the bounds of a "
                    f"certificate are made, got {found}; write precision=float64 and jax_enable_x64."
                )


@dataclass(frozen=True)
class Check:
    """One row of a certificate: what was compared, what was measured and required, and whether it holds.

    passed: None where it could not be tested.
    """

    name: str
    measured: str
    required: str
    passed: bool | None


@dataclass(frozen=True)
class Certificate:
    """Checks of a gradient and their verdict; as text, a table. `scope` restricts the verdict."""

    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()
    scope: str = ""

    def __repr__(self) -> str:
        return f"Certificate: {self.verdict}"

    @property
    def passed(self) -> bool:
        """Tell whether every check holds; a check that could not be tested counts as failed."""
        return all(check.passed is True for check in self.checks)

    @property
    def verdict(self) -> str:
        """The verdict as one sentence."""
        failed = [check.name for check in self.checks if check.passed is False]
        untested = [check.name for check in self.checks if check.passed is None]
        if failed:
            return f"FAILED: {len(failed)} of {len(self.checks)} checks: {'; '.join(failed)}"
        if untested:
            return f"NOT CERTIFIED: not tested: {'; '.join(untested)}"
        return f"PASSED: all {len(self.checks)} checks{self.scope and f', {self.scope}'}"

    def __str__(self) -> str:
        said = {True: "passed", False: "FAILED", None: "not tested"}
        titles = ["check", "measured", "required", "verdict"]
        rows = [[check.name, check.measured, check.required, said[check.passed]] for check in self.checks]
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        rows = [titles, ["-" * width for width in widths], *rows]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([*(line.rstrip() for line in lines), *(f"note: {note}" for note in self.notes), self.verdict])


def certify(objective: Objective) -> Certificate:
    """Check the gradient of `objective` and say in one table what was found.

    - Taylor: |L(u + h d) - L(u) - h <g, d>| falls with the square of h, slope 2.0 +- 0.05, for all unknowns together
      and for each by itself, at the smallest h where it stands clear of rounding (`certificate.remainder`).
    - The two modes: <g, d> of reverse mode and the derivative along d of forward mode, relative to sum |g_i d_i|.
    - Central differences along random directions: their cosine with the gradient and their relative difference.
    - Shapes over a whole cell: the mean of the derivative along the way, against the difference of the values at its
      ends, relative to the mean size of the derivative. Where the function jumps as a surface passes cells, the
      derivative is right everywhere and its mean is not.
    - Meshes against one device, plans against "every_step", with which all else is measured: value and gradient, each
      array relative to its largest entry.

    A function without forward mode (a `custom_vjp`) is not certified. Functions have kinks, of limiters and upwind
    fluxes, and the start may be on one or too near to it. Where checks fail there, all but the last are measured again
    a thousandth beside it, at most three times: a wrong derivative is wrong there too. If they all hold, the verdict
    and a note say that it was not at the start.

    Raises:
        NumericalError: the function is not finite at the start.
    """
    start: Unknowns = jax.tree.map(np.asarray, objective.start)
    meshes: list[Variant] = [(sizes, REFERENCE) for sizes in objective.meshes]
    plans: list[Variant] = [({}, plan) for plan in objective.plans]
    programs = CompiledObjective(objective.on, [({}, REFERENCE), *meshes, *plans], start)
    gradient = _Gradient(programs, start, objective.direction)
    local, notes = _local_checks(gradient), list(objective.notes)
    scope = [] if objective.meshes else ["on one device only"]
    if any(check.passed is False for check in local):
        clear = _beside_kinks(gradient)
        if clear:
            notes += [
                f"at the start, perhaps by a kink: {check.name}: {check.measured}"
                for check in local
                if not check.passed
            ]
            scope.append(f"{BESIDE:.0e} beside the start")
            local = clear
    if gradient.silent:
        notes.append(f"the function does not depend on {', '.join(gradient.silent)} here")
    checks = [
        *local,
        *(_across_check(gradient, name, direction) for name, direction in objective.across.items()),
        *(_mesh_check(gradient, sizes) for sizes in objective.meshes),
        *(_plan_check(gradient, plan) for plan in objective.plans),
        *(Check(name, reason, "", None) for name, reason in objective.untested.items()),
    ]
    return Certificate(tuple(checks), tuple(notes), ", ".join(scope))


class _Gradient:
    """A function's value and gradient at some unknowns, on one device."""

    def __init__(self, programs: CompiledObjective, start: Unknowns, direction: Unknowns | None = None):
        self.programs, self.start = programs, start
        self.value, self.slopes = programs.gradient(start, programs.variants[0])
        if not (np.isfinite(self.value) and all(np.all(np.isfinite(g)) for g in jax.tree.leaves(self.slopes))):
            raise NumericalError(
                f"the function is {self.value:g} at the start and its gradient must be finite too: expected finite "
                "numbers; write a shorter time.dt or other values."
            )
        self.sizes = natural_sizes(start, self.value, self.slopes)
        self.silent = tuple(name for name in start if not _any(self.slopes[name]))
        self.smooth = smooth_direction(start, self.sizes, seed=0)
        self.rough = rough_directions(start, self.sizes, DIRECTIONS)
        self.direction = self.smooth if direction is None else direction

    def loss(self, unknowns: Unknowns) -> float:
        return self.programs.value(unknowns)

    def slope(self, direction: Unknowns) -> float:
        """The derivative along a direction, by reverse mode."""
        return dot(self.slopes, direction)

    def scale(self, direction: Unknowns) -> float:
        """Sum of the sizes of the products that `slope` adds up."""
        return dot(jax.tree.map(np.abs, self.slopes), jax.tree.map(np.abs, direction))

    def only(self, name: str) -> Unknowns:
        """The smooth direction in one unknown, zero in all other unknowns."""
        return {key: d if key == name else jax.tree.map(np.zeros_like, d) for key, d in self.smooth.items()}

    @functools.cached_property
    def remainders(self) -> dict[str, Remainder]:
        """Taylor remainders in all unknowns ("") and in each that has a gradient."""
        directions = {"": self.direction} | {name: self.only(name) for name in self.start if name not in self.silent}
        return {
            name: taylor_remainder(self.loss, self.start, d, self.slope(d), self.scale(d))
            for name, d in directions.items()
        }


# ---------------------------------------------------------------------- checks


def _local_checks(gradient: _Gradient) -> list[Check]:
    return [
        *_taylor_checks(gradient),
        *_influence_checks(gradient),
        _mode_check(gradient),
        *_difference_checks(gradient),
    ]


def _beside_kinks(gradient: _Gradient) -> list[Check]:
    """Find a start near that of `gradient` at which every check holds, and return its checks; none without one."""
    for seed in range(1, STARTS):
        aside = smooth_direction(gradient.start, gradient.sizes, seed)
        checks = _local_checks(_Gradient(gradient.programs, moved(gradient.start, aside, BESIDE)))
        if all(check.passed is not False for check in checks):
            return checks
    return []


def _taylor_checks(gradient: _Gradient) -> list[Check]:
    names = [name for name in gradient.remainders if name]
    numbers = [name for name in names if all(leaf.ndim == 0 for leaf in jax.tree.leaves(gradient.start[name]))]
    checks = [_taylor_check("Taylor remainder, all unknowns", {"": gradient.remainders[""]})]
    for kind, chosen in (("number", numbers), ("field", [name for name in names if name not in numbers])):
        if chosen:
            each = f"{len(chosen)} {kind}s, each" if len(chosen) > 1 else f"1 {kind}"
            checks.append(_taylor_check(f"Taylor remainder, {each}", {n: gradient.remainders[n] for n in chosen}))
    return checks


def _taylor_check(name: str, found: Mapping[str, Remainder]) -> Check:
    """The Taylor check of the unknown whose remainder is worst."""
    unknown, worst = max(found.items(), key=lambda item: item[1].fault)
    measured = f"{worst} ({unknown})" if unknown else str(worst)
    return Check(name, measured, f"slope {SLOPE} +- {SLOPE_BOUND}", all(r.fault <= SLOPE_BOUND for r in found.values()))


def _influence_checks(gradient: _Gradient) -> list[Check]:
    """Unknowns whose gradient is zero must not change the value."""
    if not gradient.silent:
        return []
    changes = {}
    for name in gradient.silent:
        direction = gradient.only(name)
        noise = computational_noise(gradient.loss, gradient.start, direction)
        changed = gradient.loss(moved(gradient.start, direction, 2.0**-4)) - gradient.loss(gradient.start)
        changes[name] = abs(changed) / noise
    name, worst = max(changes.items(), key=lambda item: item[1])
    measured = f"value moves by {worst:.1g} of its rounding" + (f" ({name})" if worst > 0 else "")
    return [Check(f"zero gradient, {len(changes)} unknown(s)", measured, "<= 10", worst <= 10)]


def _mode_check(gradient: _Gradient) -> Check:
    name, required = f"forward against reverse, {1 + DIRECTIONS} directions", f"<= {MODE_BOUND:.0e}"
    if not gradient.programs.has_forward_mode:
        return Check(name, "there is no forward mode (custom_vjp)", required, None)
    worst = max(
        abs(gradient.programs.along(gradient.start, d) - gradient.slope(d)) / (gradient.scale(d) or 1.0)
        for d in (gradient.smooth, *gradient.rough)
    )
    return Check(name, f"{worst:.1e}", required, worst <= MODE_BOUND)


def _difference_checks(gradient: _Gradient) -> list[Check]:
    """Central differences along rough directions against the gradient."""
    measured, expected = [], []
    for direction in gradient.rough:
        noise = computational_noise(gradient.loss, gradient.start, direction)
        step = (noise / abs(gradient.value or 1.0)) ** DIFFERENCE_POWER
        values = [gradient.loss(moved(gradient.start, direction, k * step)) for k in (-2, -1, 1, 2)]
        # Of fourth order.
        measured.append((values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step))
        expected.append(gradient.slope(direction))
    found, wanted = np.asarray(measured), np.asarray(expected)
    sizes = np.linalg.norm(found), np.linalg.norm(wanted)
    lost = 1 - float(found @ wanted) / float(sizes[0] * sizes[1] or 1.0)
    off = float(np.linalg.norm(found - wanted) / (sizes[1] or 1.0))
    name = f"central differences, {DIRECTIONS} directions"
    return [
        Check(f"{name}: 1 - cosine", f"{abs(lost):.1e}", f"<= {COSINE_BOUND:.0e}", lost <= COSINE_BOUND),
        Check(f"{name}: relative", f"{off:.1e}", f"<= {DIFFERENCE_BOUND:.0e}", off <= DIFFERENCE_BOUND),
    ]


def _across_check(gradient: _Gradient, name: str, direction: Unknowns) -> Check:
    """The derivative's mean on a way across a cell against the difference between its ends."""

    def place(share: float) -> tuple[float, float, float]:
        return share, *gradient.programs.value_and_slope(moved(gradient.start, direction, share), direction)

    # The trapezoidal rule between places, of which there are more where it leaves most, until it is likely to pass.
    ends = [place(share) for share in np.linspace(-0.5, 0.5, FIRST_PLACES).tolist()]
    pieces = [_Piece(low, high) for low, high in itertools.pairwise(ends)]
    for _ in range(PLACES - len(ends)):
        wide = [piece for piece in pieces if piece.width > JUMP]
        left, bound = abs(sum(piece.left for piece in pieces)), ACROSS_BOUND * sum(piece.size for piece in pieces)
        # Written so that it ends where a value is not finite.
        if not wide or not left + DOUBT * sum(piece.left**2 for piece in wide) ** 0.5 > bound:
            break
        worst = max(wide, key=lambda piece: abs(piece.left))
        pieces.remove(worst)
        middle = place(0.5 * (worst.low[0] + worst.high[0]))
        pieces += [_Piece(worst.low, middle), _Piece(middle, worst.high)]
    left, size = abs(sum(piece.left for piece in pieces)), sum(piece.size for piece in pieces)
    off = left / size if size else (0.0 if left == 0 else np.inf)
    measured = f"mean derivative off by {off:.1e} of its size"
    return Check(f"shape over a cell, {name}", measured, f"<= {ACROSS_BOUND:g}", off <= ACROSS_BOUND)


class _Piece(NamedTuple):
    """A part of a way: the share of the way, the value and the slope at both ends."""

    low: tuple[float, float, float]
    high: tuple[float, float, float]

    @property
    def width(self) -> float:
        return self.high[0] - self.low[0]

    @property
    def mean(self) -> float:
        return 0.5 * self.width * (self.low[2] + self.high[2])

    @property
    def size(self) -> float:
        return abs(self.mean)

    @property
    def left(self) -> float:
        """The change of the value less that by the mean slope."""
        return self.high[1] - self.low[1] - self.mean


def _mesh_check(gradient: _Gradient, sizes: Mapping[str, int]) -> Check:
    found = gradient.programs.gradient(gradient.start, (sizes, REFERENCE))
    count = int(np.prod([*sizes.values()]))
    cut = " x ".join(f"{name}={size}" for name, size in sizes.items())
    return _same(f"one device against {count}, {cut}", found, gradient, MESH_BOUND)


def _plan_check(gradient: _Gradient, plan: Checkpoint) -> Check:
    found = gradient.programs.gradient(gradient.start, ({}, plan))
    return _same(f"{REFERENCE} against {plan}", found, gradient, PLAN_BOUND)


def _same(name: str, found: tuple[float, Unknowns], gradient: _Gradient, bound: float) -> Check:
    value, slopes = found
    errors = jax.tree.map(_relative, slopes, gradient.slopes)
    worst = max(jax.tree.leaves(errors))
    off = _relative(np.asarray(value), np.asarray(gradient.value))
    measured = f"value {off:.1e}, gradient {worst:.1e}"
    return Check(name, measured, f"<= {bound:.0e}", max(off, worst) <= bound)


def _relative(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference relative to the largest entry; infinite where only the latter is zero, or for NaN."""
    difference, scale = np.max(np.abs(found - expected)), np.max(np.abs(expected))
    if difference == 0:
        return 0.0
    return float(difference / scale) if scale > 0 and np.isfinite(difference) else np.inf


def _any(tree) -> bool:
    return any(bool(np.any(leaf)) for leaf in jax.tree.leaves(tree))
