"""Small problems of acoustic and electromagnetic waves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from case import PERIODIC, Case, smooth_field

from simjax.core.boundary import SlipWall
from simjax.core.mappings import lines
from simjax.grid import Grid
from simjax.models.waves import acoustic, maxwell, poles
from simjax.models.waves.incident_setup import IncidentWave
from simjax.models.waves.mode_setup import ModeSource
from simjax.models.waves.pml import AbsorbingSide, FreeSurface
from simjax.models.waves.point_sources import SampledSignal
from simjax.stepping.checkpointing.plan import Binomial
from simjax.stepping.simulate import Schedule


class Oscillation(eqx.Module):
    """A signal with two numbers in it."""

    strength: jax.Array
    frequency: jax.Array

    def __call__(self, t):
        return self.strength * jnp.cos(self.frequency * t)


class Body(eqx.Module):
    """A medium that varies smoothly, with a round body of another in it."""

    outside: jax.Array
    inside: jax.Array

    def __call__(self, x, y):
        within = (x - 2.3) ** 2 + (y - 0.6) ** 2 < 1.1**2
        return jnp.where(within, self.inside, self.outside * (1.5 + 0.3 * jnp.sin(x + 2 * y)))


class Core(eqx.Module):
    """A guide along x."""

    inside: jax.Array
    outside: jax.Array

    def __call__(self, x, y):
        return jnp.where((y > 0.3) & (y < 1.7), self.inside, self.outside)


def rippled(model, params):
    """A smooth state in which also layers, free surfaces and the lag hold something."""
    grid = model.domain.grid
    layouts = model.component_layouts()
    fields = {
        name: tuple(smooth_field(grid, layout.offset, i) for i, layout in enumerate(kinds))
        for name, kinds in layouts.items()
    }
    state = model.state_from(fields, params)
    if isinstance(model, acoustic.Acoustic):
        state = eqx.tree_at(lambda s: s.memory, state, _remembered(grid, state.memory))
    else:
        where = lambda s: (s.electric_memory, s.magnetic_memory)  # noqa: E731
        state = eqx.tree_at(where, state, _remembered(grid, where(state)))
        state = eqx.tree_at(lambda s: s.poles, state, _remembered(grid, state.poles))
        if state.incident is not None:
            line = jax.tree.map(lambda u: jnp.sin(0.3 * jnp.arange(len(u), dtype=u.dtype)), state.incident)
            state = eqx.tree_at(lambda s: s.incident, state, line)
    state = eqx.tree_at(lambda s: s.lag, state, jnp.asarray(0.004))
    return jax.jit(model.constrain)(0.0, 0.0, state, params)


def _remembered(grid, memory):
    leaves, tree = jax.tree.flatten(memory)
    offset = (0.5,) * grid.ndim
    return jax.tree.unflatten(tree, [0.3 * smooth_field(grid, offset, 7 + k) for k in range(len(leaves))])


def medium(grid, seed):
    """A positive property that varies by a factor of about two."""
    return 1.5 + 0.3 * smooth_field(grid, (0.5,) * grid.ndim, seed)


def _sampled():
    return SampledSignal(jnp.asarray([0.0, 0.03, 0.2]), jnp.asarray([0.5, 1.0, -2.0]))


def _oscillation():
    return Oscillation(jnp.asarray(2.0), jnp.asarray(3.0))


def _sounding(grid, *sources):
    signals = (_oscillation(), _sampled())[: len(sources)]
    positions = jnp.asarray(sources) if sources else None
    return lambda: acoustic.Params(medium(grid, 3), medium(grid, 5), positions, signals)


def _dispersive(grid, strength):
    """Poles of each kind: of a strength that varies, everywhere the same, and by a function of place."""
    return (
        poles.DrudePole(medium(grid, 8), jnp.asarray(4.0), jnp.asarray(0.4)),
        poles.LorentzPole(jnp.asarray(0.7), jnp.asarray(9.0)),
        poles.DebyePole(strength, jnp.asarray(0.2)),
    )


def _shining(grid, *sources, conductivity=True, permittivity=None, poles=()):
    signals = (_sampled(), _oscillation())[: len(sources)]
    return lambda: maxwell.Params(
        permittivity or medium(grid, 2),
        medium(grid, 4),
        medium(grid, 6) if conductivity else None,
        jnp.asarray(sources),
        signals,
        poles=poles,
    )


_line = Grid((24,), (0.0,), (2.0,))
_plane = Grid((16, 24), (0.0, -1.0), (2 * np.pi, 3.0))
_box = Grid((8, 12, 8), (0.0, 0.0, -1.0), (2 * np.pi, 3.0, 1.0))
_stretched = Grid(
    (24, 16),
    stretch=(
        lines("formula", "s - 0.1*sin(2*pi*s)", 24, 0.0, 2 * np.pi),
        lines("formula", "tanh(1.2*s)", 16, -1.0, 3.0),
    ),
)
_rings = Grid(
    (16, 24), stretch=(lines("formula", "s - 0.3*s*s*(1 - s)", 16, 0.0, 2.0), None), upper=(2.0, 3.0), axisymmetric=True
)
_body = Body(jnp.asarray(1.3), jnp.asarray(4.0))
_wall, _free, _layer = SlipWall(), FreeSurface(), AbsorbingSide()
# 0.05 / 0.02 is no integer: two full steps and a shortened one per frame.
_fixed = Schedule(0.05, dt=0.02)

CASES = (
    Case(
        "acoustic-1d",
        _line,
        lambda domain: acoustic.Acoustic(domain, [(_layer, _free)], order=4, layer_cells=5),
        _sounding(_line, (1.33,)),
        rippled,
        "leapfrog",
        Schedule(0.025, dt=0.01),
        checkpoint="none",
    ),
    Case(
        "acoustic-2d",
        _plane,
        lambda domain: acoustic.Acoustic(domain, [(_free, _layer), (_layer, _wall)], layer_cells=5),
        _sounding(_plane, (2.2, 0.4), (5.9, 2.9)),
        rippled,
        "leapfrog",
        Schedule(0.1, courant=0.5, max_steps=4),
        checkpoint=Binomial(2),
    ),
    Case(
        "acoustic-2d-stretched",
        _stretched,
        lambda domain: acoustic.Acoustic(domain, [PERIODIC, (_layer, _free)], order=4, layer_cells=4),
        _sounding(_stretched, (2.2, 0.4)),
        rippled,
        "leapfrog",
        Schedule(0.05, courant=0.5, max_steps=3),
        checkpoint="none",
        frames=1,
    ),
    Case(
        "acoustic-2d-axisymmetric",
        _rings,
        lambda domain: acoustic.Acoustic(domain, [(_wall, _wall), (_layer, _free)], layer_cells=4),
        _sounding(_rings, (0.0, 1.3)),
        rippled,
        "leapfrog",
        Schedule(0.03, courant=0.5, max_steps=3),
        checkpoint="none",
        frames=1,
    ),
    Case(
        "acoustic-3d",
        _box,
        lambda domain: acoustic.Acoustic(domain, [PERIODIC] * 3, order=4),
        _sounding(_box, (0.2, 2.9, 0.0)),
        rippled,
        "leapfrog",
        _fixed,
        checkpoint="none",
    ),
    Case(
        "maxwell-2d",
        _plane,
        lambda domain: maxwell.Maxwell(domain, [PERIODIC, (_layer, _layer)], polarisation="te", layer_cells=5),
        _shining(_plane, (2.2, 0.4)),
        rippled,
        "leapfrog",
        _fixed,
        checkpoint="two_level",
    ),
    Case(
        "maxwell-2d-poles",
        _plane,
        lambda domain: maxwell.Maxwell(domain, [PERIODIC, (_layer, _wall)], polarisation="te", layer_cells=5),
        _shining(_plane, (2.2, 0.4), poles=_dispersive(_plane, _body)),
        rippled,
        "leapfrog",
        _fixed,
        checkpoint="none",
        frames=1,
    ),
    Case(
        "maxwell-2d-incident",
        _plane,
        lambda domain: maxwell.Maxwell(
            domain,
            [(_layer, _wall), (_layer, _layer)],
            layer_cells=4,
            incident=IncidentWave((2.4, 0.0), (5.5, 2.0), "-y"),
        ),
        lambda: maxwell.Params(jnp.asarray(1.3), jnp.asarray(0.7), incident=_oscillation()),
        rippled,
        "leapfrog",
        _fixed,
        checkpoint="none",
        frames=1,
        weighed=lambda model, t, state, params: (state.electric, state.magnetic),
    ),
    Case(
        "maxwell-2d-mode",
        _plane,
        lambda domain: maxwell.Maxwell(
            domain,
            [(_layer, _layer), (_wall, _wall)],
            polarisation="te",
            layer_cells=4,
            mode_sources=[ModeSource("-x", 3.5, 0.4, mode=1)],
        ),
        lambda: maxwell.Params(
            Core(jnp.asarray(2.3), jnp.asarray(1.2)), jnp.asarray(0.9), mode_signals=(_oscillation(),)
        ),
        rippled,
        "leapfrog",
        _fixed,
        checkpoint="none",
        frames=1,
        weighed=lambda model, t, state, params: (state.electric, state.magnetic),
    ),
    Case(
        "maxwell-2d-stretched",
        _stretched,
        lambda domain: maxwell.Maxwell(domain, [PERIODIC, (_wall, _layer)], polarisation="te", layer_cells=4),
        _shining(_stretched, (2.2, 0.4), permittivity=_body),
        rippled,
        "leapfrog",
        Schedule(0.05, courant=0.5, max_steps=3),
        checkpoint="none",
        frames=1,
    ),
    Case(
        "maxwell-2d-axisymmetric",
        _rings,
        lambda domain: maxwell.Maxwell(domain, [(_wall, _wall), (_layer, _wall)], polarisation="te", layer_cells=4),
        _shining(_rings, (0.0, 1.3)),
        rippled,
        "leapfrog",
        Schedule(0.03, courant=0.5, max_steps=3),
        checkpoint="none",
        frames=1,
    ),
    Case(
        "maxwell-3d",
        _box,
        lambda domain: maxwell.Maxwell(domain, [(_wall, _wall), PERIODIC, (_wall, _layer)], layer_cells=3),
        _shining(_box, (2.2, 0.4, 0.3), conductivity=False),
        rippled,
        "leapfrog",
        _fixed,
        checkpoint="none",
    ),
)
