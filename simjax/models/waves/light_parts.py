"""State and parameters of light, and what its steps are prepared with."""

import equinox as eqx
from jax import Array

from simjax.arguments import require_at_least
from simjax.models.waves.incident import Line, Speed
from simjax.models.waves.medium import Property
from simjax.models.waves.mode_sources import ModeShape
from simjax.models.waves.pml import Profile
from simjax.models.waves.point_sources import PointSources
from simjax.models.waves.poles import Parts, Pole
from simjax.models.waves.scales import AxisScales
from simjax.models.waves.staggered_waves import Signal
from simjax.notebook import all_in_a_line


class State(eqx.Module):
    """electric at time t, magnetic at t - lag: one `(*grid.shape)` array for every component there is.

    memories: per component and term of its curl, None or the memory of its absorbing layer. poles: what each pole keeps
    at time t, per component of E. incident: of a wave that enters a box.
    """

    electric: tuple[Array, ...]
    magnetic: tuple[Array, ...]
    electric_memory: tuple[tuple[Array | None, ...], ...]
    magnetic_memory: tuple[tuple[Array | None, ...], ...]
    lag: Array
    poles: tuple[tuple[Parts, ...], ...] = ()
    incident: Line | None = None

    __repr__ = all_in_a_line


class Params(eqx.Module):
    """permittivity, permeability, conductivity (None: an insulator): scalars, one value for each cell `(*grid.shape)`,
    functions of place `f(*coordinates)`, or what `Maxwell.averaged` makes of these, one array for each component.

    sources (count, axes): positions, with one of the `signals` each, strengths of current elements; receivers (count,
    axes). poles: what the medium's dispersion is made of, such as `LorentzPole`. incident: the field E of a wave one
    cell in front of the box that it enters, of time. mode_signals: largest E of each mode in the plane of its source.
    """

    permittivity: Property
    permeability: Property
    conductivity: Property | None = None
    sources: Array | None = None
    signals: tuple[Signal, ...] = ()
    receivers: Array | None = None
    poles: tuple[Pole, ...] = ()
    incident: Signal | None = None
    mode_signals: tuple[Signal, ...] = ()

    __repr__ = all_in_a_line

    def __check_init__(self):
        numbers = {"permittivity": self.permittivity, "permeability": self.permeability}
        require_at_least("Maxwell.Params", numbers, strictly=True)
        require_at_least("Maxwell.Params", {"conductivity": self.conductivity})


class Layer(eqx.Module):
    """Layers along one axis: profiles on faces and at centres, and the medium of `Prepared` on their lines."""

    face: Profile
    center: Profile
    impermittivity: tuple[Array, ...]
    decay: tuple[Array, ...] | None
    impermeability: tuple[Array, ...]
    poles: tuple[Pole, ...]


class Prepared(eqx.Module):
    """1/permittivity and conductivity/permittivity where E is, 1/permeability where H is, absorbing layers per
    axis, 1/permittivity-weighted surroundings of the sources, scales of derivatives, poles of which the strength
    over the permittivity is where E is, and what incident waves and modes are made of."""

    impermittivity: tuple[Array, ...]
    decay: tuple[Array, ...] | None
    impermeability: tuple[Array, ...]
    layers: tuple[Layer | None, ...]
    sources: PointSources | None
    scales: AxisScales
    poles: tuple[Pole, ...]
    incident: Speed | None
    modes: tuple[ModeShape, ...]
