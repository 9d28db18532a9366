"""The sections `mesh` and `distributed`: devices, and the processes that they belong to."""

from __future__ import annotations

from dataclasses import dataclass

from simjax.schema.kinds import Flag, Integer, Text, key

AUTO = "auto"


@dataclass(frozen=True)
class MeshConfig:
    """Devices per axis of the device mesh."""

    x: int = key(Integer(1), 1, about="devices along x")
    y: int = key(Integer(1), 1, about="devices along y")
    z: int = key(Integer(1), 1, about="devices along z")
    ensemble: int = key(Integer(1), 1, about="devices over the members")
    overlap: bool = key(Flag(), False, about="compute the interior while ghosts travel")

    @property
    def devices(self) -> int:
        return self.x * self.y * self.z * self.ensemble


@dataclass(frozen=True)
class AutoMesh(MeshConfig):
    """`mesh: auto`: sizes of one, until `driver.start.mesh_choice` knows the devices and returns a `MeshConfig`."""

    def write(self) -> str:
        """The plain YAML value."""
        return AUTO


@dataclass(frozen=True)
class DistributedConfig:
    """The section `distributed`: the processes that carry out a run together, as each of them is told."""

    coordinator: str = key(
        Text(pattern=r"\S+:\d+", described="HOST:PORT"), about="where process 0 can be reached by all"
    )
    processes: int = key(Integer(1), about="how many there are")
    process: int = key(Integer(0), about="number of this one, from 0 on")
