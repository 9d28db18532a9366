"""Derivatives of whole simulations: exact for the discrete program, in both modes, wherever they pass through.

Three questions of each problem: does the remainder of a Taylor expansion fall with the square of the step; do forward
and reverse mode agree; is the gradient the same on a mesh.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from simjax.core.boundary import Dirichlet, Inflow, Neumann, NoSlipWall, PeriodicSide, ScalarSide, SlipWall
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow import incompressible
from simjax.models.scalar import advection_diffusion
from simjax.parallel import decompose, distribute, make_mesh
from simjax.stepping.simulate import Schedule, simulate

# Derivatives do not depend on how well loops are vectorised, and most of the time here goes into compilation.
compiled = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

PERIODIC = (PeriodicSide(), PeriodicSide())
PLANE = Grid((8, 16), (0.0, -1.0), (2.0, 1.0))
BOX = Grid((4, 8, 4), (0.0, -1.0, 0.0), (2.0, 1.0, 1.0))


@dataclass(frozen=True)
class Problem:
    """A loss of a simulation, a function of a tree of unknowns of which the last, "state", is the initial state.

    `model(domain, unknowns)` and `params(unknowns)` make it; walls and coefficients may depend on the unknowns.
    """

    name: str
    grid: Grid
    model: Any
    params: Any
    unknowns: dict[str, float]
    fields: int
    schedule: Schedule = Schedule(0.05, dt=0.02)
    integrator: str = "heun"
    checkpoint: str = "two_level"

    def start(self):
        """Unknowns at which to differentiate: the numbers, and smooth fields of order one that obey no constraint."""
        fields = tuple(smooth(self.grid, i) for i in range(self.fields))
        return {name: jnp.asarray(value) for name, value in self.unknowns.items()} | {"state": fields}

    def direction(self):
        """A direction for every unknown, of the unknowns' own size."""
        numbers = {name: jnp.asarray(0.3 * value) for name, value in self.unknowns.items()}
        return numbers | {"state": tuple(smooth(self.grid, 10 + i) for i in range(self.fields))}

    def loss(self, sizes=()):
        """The loss, on one device or on a mesh given as items."""
        mesh = make_mesh(dict(sizes))
        domain = decompose(self.grid, mesh)

        def evaluate(unknowns):
            model, params = self.model(domain, unknowns), self.params(unknowns)
            state = model.constrain(0.0, 0.0, model.state_from({self.field: unknowns["state"]}, params), params)
            trajectory = simulate(
                model,
                INTEGRATORS[self.integrator],
                params,
                state,
                self.schedule,
                frames=2,
                observe=lambda t, state, params: weighted(domain, state),
                checkpoint=self.checkpoint,
            )
            return jnp.sum(trajectory.observed)

        fields = (domain.spec(),) * self.fields
        specs = {name: PartitionSpec() for name in self.unknowns} | {"state": fields}
        return distribute(evaluate, mesh, in_specs=(specs,), out_specs=PartitionSpec())

    @property
    def field(self):
        return "concentration" if self.fields == 1 else "velocity"


def smooth(grid, seed):
    """A few waves with unrelated phases; neither periodic nor symmetric."""
    x = np.meshgrid(*(grid.coordinates(axis, 0.5) for axis in range(grid.ndim)), indexing="ij")
    return jnp.asarray(np.prod([np.sin((1.3 + 0.2 * k) * v + k + 1.7 * seed) for k, v in enumerate(x)], axis=0))


def weighted(domain, state):
    """A cubic functional with a weight that differs from cell to cell."""
    x = domain.coordinates((0.5,) * domain.grid.ndim)
    weight = 1 + 0.3 * sum(jnp.sin((k + 2.1) * v) for k, v in enumerate(x))
    return domain.sum(jax.tree.map(lambda u: weight * (u * u + 0.3 * u * u * u), state)) / domain.grid.cells


def flow(*pairs):
    """An incompressible flow between `pairs(unknowns)`, driven by a force that the unknown "force" scales."""

    def model(domain, unknowns):
        sides = [pair(unknowns) if callable(pair) else pair for pair in pairs]
        force = lambda t, x, params: unknowns.get("force", 0.0) * jnp.sin(3 * x[1]) * jnp.cos(t)  # noqa: E731
        return incompressible.Incompressible(domain, sides, [force] + [None] * (len(pairs) - 1))

    return model


def flow_params(unknowns):
    return incompressible.Params(unknowns["viscosity"], jnp.asarray(0.1))


def transport(scheme, *pairs):
    def model(domain, unknowns):
        sides = [pair(unknowns) if callable(pair) else pair for pair in pairs]
        return advection_diffusion.AdvectionDiffusion(domain, sides, scheme)

    return model


def transport_params(unknowns):
    return advection_diffusion.Params(unknowns["diffusivity"], jnp.stack([unknowns["speed"], -0.5 * unknowns["speed"]]))


def moving(unknowns, ndim=2):
    """A wall at rest below and one above that moves with the unknown speed, not the same everywhere."""
    return NoSlipWall(), NoSlipWall((lambda t, *x: unknowns["wall"] * jnp.cos(x[0] + t), *[0.0] * (ndim - 1)))


moving_in_space = functools.partial(moving, ndim=3)


def heated(unknowns):
    """A given value below, a given slope above."""
    return (
        ScalarSide(Dirichlet(unknowns["wall"])),
        ScalarSide(Neumann(lambda t, *x: unknowns["wall"] * jnp.sin(x[0] + t))),
    )


FLOW = {"viscosity": 0.05, "wall": 0.8, "force": 0.6}
TRANSPORT = {"diffusivity": 0.04, "speed": 0.7, "wall": 0.5}
PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("transport", PLANE, transport("central", PERIODIC, heated), transport_params, TRANSPORT, 1),
        Problem(
            "upwind transport, every step",
            PLANE,
            transport("upwind", heated, PERIODIC),
            transport_params,
            TRANSPORT,
            1,
            checkpoint="every_step",
            integrator="williamson3",
        ),
        Problem(
            "periodic flow",
            PLANE,
            flow(PERIODIC, PERIODIC),
            flow_params,
            {"viscosity": 0.05, "force": 0.6},
            2,
            integrator="euler",
        ),
        Problem(
            "moving wall, no checkpoints",
            PLANE,
            flow(PERIODIC, moving),
            flow_params,
            FLOW,
            2,
            checkpoint="none",
            integrator="euler",
        ),
        Problem(
            "cavity, every step",
            PLANE,
            flow((NoSlipWall(), SlipWall()), moving),
            flow_params,
            FLOW,
            2,
            checkpoint="every_step",
            integrator="euler",
        ),
        Problem(
            "box",
            BOX,
            flow(PERIODIC, moving_in_space, PERIODIC),
            flow_params,
            FLOW,
            3,
            integrator="euler",
        ),
    )
}
COURANT = {
    problem.name: problem
    for problem in (
        Problem(
            "transport by Courant number",
            PLANE,
            transport("central", PERIODIC, heated),
            transport_params,
            TRANSPORT,
            1,
            schedule=Schedule(0.2, courant=0.4, max_steps=8),
        ),
        Problem(
            "flow by Courant number",
            PLANE,
            flow(PERIODIC, moving),
            flow_params,
            FLOW,
            2,
            schedule=Schedule(0.2, courant=0.4, max_steps=12),
            integrator="euler",
        ),
    )
}
ALL = PROBLEMS | COURANT


@functools.cache
def reverse(name):
    """The compiled value and gradient, on one device."""
    return compiled(jax.value_and_grad(ALL[name].loss()))


def dot(a, b):
    return sum(float(jnp.vdot(x, y)) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def along(unknowns, direction, length):
    return jax.tree.map(lambda u, d: u + length * d, unknowns, direction)


def only(direction, name):
    """The direction with all unknowns but one held."""
    return {key: d if key == name else jax.tree.map(jnp.zeros_like, d) for key, d in direction.items()}


def each(problems):
    """In three dimensions the equations are those of two with one more axis, and one flow shows them at all times."""
    slow = ("box", "cavity, every step", "flow by Courant number", "moving wall, no checkpoints")
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=[pytest.mark.slow] if name in slow else []) for name in problems]
    )


@each(PROBLEMS)
def test_taylor_remainder_falls_with_the_square(name):
    """With respect to each unknown alone: a wrong derivative of a small term cannot hide behind a large one."""
    problem = PROBLEMS[name]
    loss, start = reverse(name), problem.start()
    value, gradient = loss(start)
    for unknown in start:
        direction = only(problem.direction(), unknown)
        slope = dot(gradient, direction)
        assert slope != 0, f"the loss does not depend on {unknown}"
        lengths = 2.0 ** -np.arange(4, 9)
        remainders = [abs(float(loss(along(start, direction, h))[0] - value) - h * slope) for h in lengths]
        measured = np.log2(np.divide(remainders[:-1], remainders[1:]))
        # At the end the third-order term is h = 1/256 of the second; rounding of the loss is below a thousandth of it.
        assert abs(measured[-1] - 2) < 0.05, (unknown, remainders, measured)


@functools.cache
def forward(name, sizes=()):
    """The derivative along the direction by forward mode."""
    problem = ALL[name]
    return compiled(lambda u, d: jax.jvp(problem.loss(sizes), (u,), (d,))[1])(problem.start(), problem.direction())


@each(ALL)
@pytest.mark.slow
def test_forward_and_reverse_agree(name):
    """<J d, w> = <d, J^T w>; with steps by Courant number too, whose lengths count as given."""
    direction = ALL[name].direction()
    _, gradient = reverse(name)(ALL[name].start())
    # The sum is over as many products as there are unknowns, some of which cancel: relative to their sizes.
    scale = dot(jax.tree.map(jnp.abs, gradient), jax.tree.map(jnp.abs, direction))
    assert abs(float(forward(name)) - dot(gradient, direction)) < 1e-12 * scale


@pytest.mark.parametrize("name", ["transport", pytest.param("cavity, every step", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_derivatives_pass_through_exchanges(name):
    problem, sizes = ALL[name], (("x", 2), ("y", 4))
    value, gradient = compiled(jax.value_and_grad(problem.loss(sizes)))(problem.start())
    expected_value, expected = reverse(name)(problem.start())
    # Global sums are ordered otherwise; the pressure solve's transforms too.
    assert float(value) == pytest.approx(float(expected_value), rel=1e-13)
    for unknown in expected:
        for a, b in zip(jax.tree.leaves(gradient[unknown]), jax.tree.leaves(expected[unknown]), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * float(jnp.max(jnp.abs(b))), err_msg=unknown)
    assert float(forward(name, sizes)) == pytest.approx(dot(gradient, problem.direction()), rel=1e-11)


@pytest.mark.slow
def test_courant_steps_count_as_given():
    """The gradient is that of the run with the same steps, fixed: how their length depends on unknowns is left out."""
    problem = COURANT["transport by Courant number"]
    model = problem.model(decompose(PLANE, None), problem.start())
    limit = 0.4 * float(model.stable_dt(None, problem.params(problem.start())))
    # Three and a half steps of the limit: two, then the rest halved.
    lengths = [limit, limit, 0.75 * limit, 0.75 * limit]

    def taken(schedule, **changes):
        return Problem(**{**vars(problem), "schedule": schedule, **changes})

    by_courant = taken(Schedule(sum(lengths), courant=0.4, max_steps=8), integrator="euler")
    gradient = compiled(jax.grad(by_courant.loss()))(problem.start())

    @compiled
    @jax.grad
    def by_hand(unknowns):
        domain = decompose(PLANE, None)
        model, params = problem.model(domain, unknowns), problem.params(unknowns)
        state, t, total = model.state_from({"concentration": unknowns["state"]}, params), 0.0, 0.0
        for _ in range(2):
            for dt in lengths:
                state = INTEGRATORS["euler"].step(model, t, dt, state, params)
                t += dt
            total += weighted(domain, state)
        return total

    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(by_hand(problem.start())), strict=True):
        # Times and steps are the same numbers to a rounding.
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * float(jnp.max(jnp.abs(b))))


@pytest.mark.slow
def test_gradients_pass_through_inflows():
    """A prescribed velocity on both sides of a channel: its value reaches the gradient through walls and projection."""
    start = {"viscosity": jnp.asarray(0.05), "wall": jnp.asarray(0.8), "state": (smooth(PLANE, 0), smooth(PLANE, 1))}

    def inflow(unknowns):
        profile = lambda t, *x: unknowns["wall"] * (1 - x[1] ** 2)  # noqa: E731
        return Inflow((profile, 0.0)), Inflow((profile, 0.0))

    problem = Problem(
        "channel",
        PLANE,
        flow(inflow, (NoSlipWall(), NoSlipWall())),
        flow_params,
        {"viscosity": 0.05, "wall": 0.8},
        2,
        integrator="euler",
    )
    loss = problem.loss()
    gradient = compiled(jax.grad(loss))(start)
    for name in ("wall", "viscosity"):
        e = 2e-4
        shifted = [float(loss(start | {name: start[name] + k * e})) for k in (-2, -1, 1, 2)]
        measured = (shifted[0] - 8 * shifted[1] + 8 * shifted[2] - shifted[3]) / (12 * e)
        # Fourth-order differences: (e / viscosity)^4 = 3e-10 of truncation at most, eps / e = 1e-12 of rounding.
        assert float(gradient[name]) == pytest.approx(measured, rel=1e-9)
