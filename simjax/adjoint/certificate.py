"""A certificate of a gradient: whether it is the derivative of the program, in either mode, on a mesh, checkpointed."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.stages import Lowered

from simjax.adjoint.plan import Checkpoint
from simjax.adjoint.remainder import Remainder, computational_noise, moved, taylor_remainder
from simjax.core.errors import ConfigurationError, NumericalError

Unknowns = dict[str, Any]
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


@dataclass(frozen=True)
class Objective:
    """A scalar function of named unknowns, in every form in which its gradient is to be the same.

    start: unknown -> tree of float64 arrays, at which to differentiate. An unknown of scalars only is a number, any
        other one a field.
    on: `on(sizes, plan)` is the function `unknowns -> scalar` on a mesh of those sizes ({"x": 2, "y": 4}; {} is one
        device) and with that checkpoint plan, to be compiled and differentiated.
    meshes: sizes to compare with one device.
    plans: checkpoint plans to compare with "every_step".
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
    notes: tuple[str, ...] = ()
    untested: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        for path, leaf in jax.tree.leaves_with_path(self.start):
            found = getattr(leaf, "dtype", type(leaf).__name__)
            if found != np.float64:
                raise ConfigurationError(
                    f"start{jax.tree_util.keystr(path)}: expected an array of float64, for which the bounds of a "
                    f"certificate are made, {found} came; write precision=float64 and jax_enable_x64."
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
    """Checks of a gradient and what they come to; as text, a table. `scope` restricts the verdict."""

    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()
    scope: str = ""

    @property
    def passed(self) -> bool:
        """Whether every check holds; one that could not be tested does not."""
        return all(check.passed is True for check in self.checks)

    @property
    def verdict(self) -> str:
        """One sentence."""
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
      and for each by itself, at the smallest h where it stands clear of rounding (`adjoint.remainder`).
    - The two modes: <g, d> of reverse mode and the derivative along d of forward mode, relative to sum |g_i d_i|.
    - Central differences along random directions: their cosine with the gradient and their relative difference.
    - Meshes against one device, plans against "every_step", with which all else is measured: value and gradient, each
      array relative to its largest entry.

    A function without forward mode (a `custom_vjp`) is not certified.

    Raises:
        NumericalError: the function is not finite at the start.
    """
    gradient = _Gradient(objective)
    checks = [
        *_taylor_checks(gradient, objective.direction),
        *_influence_checks(gradient),
        _mode_check(gradient),
        *_difference_checks(gradient),
        *(_mesh_check(gradient, sizes) for sizes in objective.meshes),
        *(_plan_check(gradient, plan) for plan in objective.plans),
        *(Check(name, reason, "", None) for name, reason in objective.untested.items()),
    ]
    silent = ", ".join(gradient.silent)
    notes = (f"the function does not depend on {silent} here",) if silent else ()
    return Certificate(tuple(checks), (*objective.notes, *notes), "" if objective.meshes else "on one device only")


# Machine code that is not optimised computes the same derivative and is there sooner; without the fusion emitters that
# jax 0.10 has on a CPU, up to fifteen times as soon.
_OPTIONS: Any = {"xla_backend_optimization_level": 0} | (
    {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}
)


def _compile(traced: Mapping[Any, Lowered]) -> dict[Any, Callable]:
    """Programs, compiled side by side."""
    with ThreadPoolExecutor() as pool:
        started = {name: pool.submit(program.compile, _OPTIONS) for name, program in traced.items()}
        return {name: compiling.result() for name, compiling in started.items()}


def _forward(function: Callable, start: Unknowns) -> dict[str, Lowered]:
    """The derivative along a direction; nothing of a function whose rule is for reverse mode alone."""
    try:
        along = jax.jit(lambda u, d: jax.jvp(function, (u,), (d,))[1])
        return {"forward": along.lower(start, start)}
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        return {}


class _Gradient:
    """An objective's function on one device, with its value and gradient at the start."""

    def __init__(self, objective: Objective):
        self.start: Unknowns = jax.tree.map(np.asarray, objective.start)
        meshes = [(sizes, REFERENCE) for sizes in ({}, *objective.meshes)]
        self._variants = [*meshes, *(({}, plan) for plan in objective.plans)]
        traced: dict[Any, Lowered] = {
            number: jax.jit(jax.value_and_grad(objective.on(*variant))).lower(self.start)
            for number, variant in enumerate(self._variants)
        }
        function = objective.on({}, REFERENCE)
        traced["loss"] = jax.jit(function).lower(self.start)
        self._programs = _compile(traced | _forward(function, self.start))
        self.value, self.at_start = self.found({}, REFERENCE)
        if not (np.isfinite(self.value) and all(np.all(np.isfinite(g)) for g in jax.tree.leaves(self.at_start))):
            raise NumericalError(
                f"the function is {self.value:g} at the start and its gradient must be finite too: expected finite "
                "numbers; write a shorter time.dt or other values."
            )
        self.sizes = _sizes(self.start, self.value, self.at_start)
        self.silent = tuple(name for name in self.start if not _any(self.at_start[name]))

    def found(self, sizes: Mapping[str, int], plan: Checkpoint) -> tuple[float, Unknowns]:
        """Value and gradient at the start, on a mesh and with a plan."""
        program = self._programs[self._variants.index((sizes, plan))]
        value, gradient = jax.device_get(program(self.start))
        return float(value), gradient

    def loss(self, unknowns: Unknowns) -> float:
        return float(self._programs["loss"](unknowns))

    @property
    def has_forward_mode(self) -> bool:
        return "forward" in self._programs

    def forward(self, direction: Unknowns) -> float:
        """The derivative along a direction, by forward mode."""
        return float(self._programs["forward"](self.start, direction))

    def slope(self, direction: Unknowns) -> float:
        """The derivative along a direction, by reverse mode."""
        return _dot(self.at_start, direction)

    def scale(self, direction: Unknowns) -> float:
        """Sum of the sizes of the products that `slope` adds up."""
        return _dot(jax.tree.map(np.abs, self.at_start), jax.tree.map(np.abs, direction))

    @functools.cached_property
    def smooth(self) -> Unknowns:
        """A smooth direction of Taylor expansions."""
        seeds = itertools.count()
        return jax.tree.map(lambda leaf, size: size * smooth_waves(leaf.shape, next(seeds)), self.start, self.sizes)

    @functools.cached_property
    def rough(self) -> list[Unknowns]:
        """Directions with independent entries."""
        random = np.random.default_rng(0)
        return [
            jax.tree.map(lambda leaf, size: size * random.standard_normal(leaf.shape), self.start, self.sizes)
            for _ in range(DIRECTIONS)
        ]

    def only(self, name: str) -> Unknowns:
        """The smooth direction with all unknowns but one held."""
        return {key: d if key == name else jax.tree.map(np.zeros_like, d) for key, d in self.smooth.items()}


# ---------------------------------------------------------------------- checks


def _taylor_checks(gradient: _Gradient, direction: Unknowns | None) -> list[Check]:
    names = [name for name in gradient.start if name not in gradient.silent]
    numbers = [name for name in names if all(leaf.ndim == 0 for leaf in jax.tree.leaves(gradient.start[name]))]
    fields = [name for name in names if name not in numbers]
    checks = [_taylor_check("Taylor remainder, all unknowns", {"": _remainder(gradient, direction or gradient.smooth)})]
    for kind, chosen in (("number", numbers), ("field", fields)):
        found = {name: _remainder(gradient, gradient.only(name)) for name in chosen}
        if found:
            each = f"{len(found)} {kind}s, each" if len(found) > 1 else f"1 {kind}"
            checks.append(_taylor_check(f"Taylor remainder, {each}", found))
    return checks


def _remainder(gradient: _Gradient, direction: Unknowns) -> Remainder:
    return taylor_remainder(
        gradient.loss, gradient.start, direction, gradient.slope(direction), gradient.scale(direction)
    )


def _taylor_check(name: str, found: Mapping[str, Remainder]) -> Check:
    """The worst of the remainders `found`, by unknown."""
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
    if not gradient.has_forward_mode:
        return Check(name, "there is no forward mode (custom_vjp)", required, None)
    worst = max(
        abs(gradient.forward(d) - gradient.slope(d)) / (gradient.scale(d) or 1.0)
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


def _mesh_check(gradient: _Gradient, sizes: Mapping[str, int]) -> Check:
    found = gradient.found(sizes, REFERENCE)
    count = int(np.prod([*sizes.values()]))
    cut = " x ".join(f"{name}={size}" for name, size in sizes.items())
    return _same(f"one device against {count}, {cut}", found, gradient, MESH_BOUND)


def _plan_check(gradient: _Gradient, plan: Checkpoint) -> Check:
    return _same(f"{REFERENCE} against {plan}", gradient.found({}, plan), gradient, PLAN_BOUND)


def _same(name: str, found: tuple[float, Unknowns], gradient: _Gradient, bound: float) -> Check:
    value, slopes = found
    errors = jax.tree.map(_relative, slopes, gradient.at_start)
    worst = max(jax.tree.leaves(errors))
    off = _relative(np.asarray(value), np.asarray(gradient.value))
    measured = f"value {off:.1e}, gradient {worst:.1e}"
    return Check(name, measured, f"<= {bound:.0e}", max(off, worst) <= bound)


# ---------------------------------------------------------------------- directions


def smooth_waves(shape: Sequence[int], seed: int) -> np.ndarray:
    """`shape`: a few waves along every axis with pseudo-random lengths and phases, of order one, never symmetric.

    Of no axis: one number between 0.6 and 1, of either sign.
    """
    random = np.random.default_rng(seed)
    waves = np.asarray(1.0 if shape else random.choice([-1.0, 1.0]) * random.uniform(0.6, 1.0))
    for count in shape:
        k, phase = random.uniform(0.6, 2.4, 2), random.uniform(0, 2 * np.pi, 2)
        x = 2 * np.pi * (np.arange(count) + 0.5) / count
        waves = np.multiply.outer(waves, np.sin(k[0] * x + phase[0]) + 0.5 * np.cos(k[1] * x + phase[1]))
    return waves


def _sizes(start: Unknowns, value: float, gradient: Unknowns) -> Unknowns:
    """How far every array is moved: its root mean square, or if it is zero that of its unknown, or one.

    At most as far as the value would change by itself, to first order: no unknown drowns the others.
    """
    result = {}
    for name, tree in start.items():
        whole = _rms(jax.tree.leaves(tree)) or 1.0

        def size(leaf, slopes, whole=whole):
            norm = float(np.linalg.norm(slopes))
            own = _rms([leaf]) or whole
            return min(own, abs(value) / norm) if norm and value else own

        result[name] = jax.tree.map(size, tree, gradient[name])
    return result


def _rms(leaves: Sequence[np.ndarray]) -> float:
    return float(np.sqrt(sum(np.sum(leaf**2) for leaf in leaves) / sum(leaf.size for leaf in leaves)))


# ---------------------------------------------------------------------- trees


def _dot(a: Unknowns, b: Unknowns) -> float:
    return sum(float(np.vdot(x, y)) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def _any(tree: Any) -> bool:
    return any(bool(np.any(leaf)) for leaf in jax.tree.leaves(tree))


def _relative(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference relative to the largest entry; infinite where only the latter is zero, or for NaN."""
    difference, scale = np.max(np.abs(found - expected)), np.max(np.abs(expected))
    if difference == 0:
        return 0.0
    return float(difference / scale) if scale > 0 and np.isfinite(difference) else np.inf
