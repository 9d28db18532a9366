"""A run on its devices: where arrays and members lie, and how functions of one member are compiled and kept."""

import abc
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from simjax.driver.programs import program_memory
from simjax.driver.programs.kept_executables import KeptExecutables, kept_executables, signature
from simjax.driver.programs.program_identity import is_foreign
from simjax.driver.programs.program_memory import over_members
from simjax.driver.shared_programs import copies
from simjax.driver.start.build import named_values
from simjax.grid import AXES
from simjax.parallel import ENSEMBLE, distribute, make_mesh, place, prepend_axis, shardings
from simjax.schema.config import Config
from simjax.schema.ensemble import sample_members


class PlacedRun(abc.ABC):
    """A configuration on its devices: its mesh, its members, its numbers, and the executables that are kept of it.

    absent: devices for which programs are made and not run, which need not be there: arrays are shapes.
    """

    state_specs: Any

    def __init__(self, config: Config, given: Sequence[str], absent: Sequence):
        self.config = config
        self.dtype = jnp.dtype(config.precision)
        self._absent = tuple(absent)
        self.kept: KeptExecutables | None = None if absent or given else kept_executables(config)
        self.mesh = make_mesh({name: getattr(config.mesh, name) for name in (ENSEMBLE, *AXES)}, absent or None)
        self.parameters = named_values(config)
        self.members = config.ensemble.size if config.ensemble.several else None
        self._axis = ENSEMBLE if self.mesh is not None and ENSEMBLE in self.mesh.shape else None
        self._one = self._member_specs(PartitionSpec())

    def room(self) -> Mapping[str, Any]:
        """Sizes on which a checkpoint's shapes depend beside the configuration, for JSON."""
        return {}

    @property
    def local_members(self) -> int:
        """Members on each device."""
        return (self.members or 1) // self.config.mesh.ensemble

    def member_named(self, member: int) -> str:
        """A member by its number and by what varies, such as `member 3 (physics.viscosity=0.1)`."""
        varied = {path: numbers[member] for path, numbers in sample_members(self.config).items()}
        values = ", ".join(f"{path}={number:.6g}" for path, number in varied.items())
        return f"member {self.config.ensemble.members[member]}" + (f" ({values})" if values else "")

    # ------------------------------------------------------------------ arrays

    def _member_specs(self, specs):
        return specs if self.members is None else prepend_axis(specs, self._axis)

    def _place(self, tree, specs):
        """Host arrays put on the devices; `specs` is one spec for all or a tree of them."""
        if isinstance(specs, PartitionSpec):
            specs = jax.tree.map(lambda _: specs, tree)
        put = _shape_on if self._absent else place
        return jax.tree.map(put, tree, self._shardings(specs))

    def _shardings(self, specs):
        return shardings(self.mesh, specs, self._absent[0] if self._absent else None)

    def host_values(self) -> dict[str, np.ndarray]:
        """Every number by name, in the run's precision."""
        return {name: np.asarray(value, self.dtype) for name, value in self.parameters.items()}

    def _place_values(self):
        return self._place(self.host_values(), self._one)

    def _begun_state(self, state):
        """An initial state on the devices that it is computed on, as those of later steps are.

        Else, where it depends on no argument, jax takes it for one without a place, and compiles everything twice.
        """
        return self._place(state, self.state_specs)

    def _place_members(self):
        members = np.asarray(self.config.ensemble.members, np.int32)
        return self._place(members if self.members is not None else members[0], self._one)

    def copy(self, *trees):
        """Copies of trees of arrays, such as a state and its clock, that outlive donation; made by one program."""
        program = copies if self.kept is None else self.kept.program(copies, "copy", signature(trees))
        return program(*trees)

    # ------------------------------------------------------------------ programs

    def _compile(
        self, fn: Callable, in_axes: tuple, in_specs: tuple, out_specs, donate=(), name: Hashable = None
    ) -> Callable:
        """The compiled program of `fn`, of one member, for this run's members.

        name: under which it is kept for later processes, beside the configuration; None: it is not.
        """

        def make(batch: int):
            mapped = fn if self.members is None else over_members(fn, in_axes, self.local_members, batch)
            program = distribute(mapped, self.mesh, in_specs=in_specs, out_specs=out_specs, donate=donate)
            if self.kept is None or name is None:
                return program
            return self.kept.program(program, name, tuple(self.room().items()), batch)

        batch = self.config.ensemble.batch
        if self.members is None or batch is not None:
            return make(batch or 1)
        return program_memory.MemberProgram(make, self.local_members, self._room_for_members)

    @abc.abstractmethod
    def _room_for_members(self) -> int | None:
        """Bytes that a program over members may fill; None where nobody says how many there are."""

    def _kept_fact(self, make: Callable[[], Any], *name: Hashable) -> Any:
        """The result of `make`, which traces, or that of an earlier process of this run."""
        return make() if self.kept is None else self.kept.fact(make, *name, tuple(self.room().items()))

    def _require_own(self, model: Any) -> None:
        """Keep nothing of a model with code that no key of executables tells, such as a user's."""
        if self.kept is not None and is_foreign(model):
            self.kept = None


def _shape_on(leaf, sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype, sharding=sharding)
