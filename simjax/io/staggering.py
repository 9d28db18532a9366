"""Fields on faces brought to cell centres: of arrays that were read, and as an accessor `dataset.simjax`."""

from __future__ import annotations

import numpy as np
import xarray

from simjax.errors import InputOutputError
from simjax.grid import AXES

FACE = "_face"


def periodic_axes(dataset: xarray.Dataset) -> tuple[str, ...]:
    """Axes whose last face is their first one, as the file's SGRID variable says."""
    for variable in dataset.variables.values():
        if variable.attrs.get("cf_role") == "grid_topology":
            return tuple(str(variable.attrs.get("periodic", "")).split())
    return ()


def between_faces(values: np.ndarray, position: int, cells: int | None, wraps: bool) -> np.ndarray:
    """Means of neighbours along the axis at `position`: with as many faces as cells, the last cell's upper face is
    the first one of an axis that wraps, else its lower face stands for both.
    """
    count = values.shape[position]
    if cells is None or count != cells + 1:
        values = np.concatenate([values, values.take([0 if wraps else count - 1], position)], position)
        count += 1
    return 0.5 * (values.take(range(count - 1), position) + values.take(range(1, count), position))


@xarray.register_dataset_accessor("simjax")
class RunAccessor:
    """Methods that simjax adds to the Dataset of a run, as `dataset.simjax`."""

    def __init__(self, dataset: xarray.Dataset):
        self._dataset = dataset

    def centered(self) -> xarray.Dataset:
        """The dataset with every field on faces averaged to cell centres, under its own name: second order.

        The last cell of a periodic axis takes the first face; at a wall the value on the wall is in the file. What is
        selected is read, so choose times and members before: `dataset.isel(time=-1).simjax.centered()`.

        Raises InputOutputError where cells or faces of an axis were cut out before.
        """
        dataset, wraps = self._dataset, periodic_axes(self._dataset)
        staggered = {n: v for n, v in dataset.data_vars.items() if any(str(d).endswith(FACE) for d in v.dims)}
        result = dataset.drop_vars(
            [*staggered, *(n for n in dataset.coords if str(n).endswith(FACE)), "grid"], errors="ignore"
        )
        for name, variable in staggered.items():
            result[name] = self._centered(variable, wraps)
        return result[[name for name in dataset.data_vars if name in result.data_vars]].assign_attrs(
            {**dataset.attrs, "Conventions": str(dataset.attrs.get("Conventions", "")).split(" ")[0]}
        )

    def _centered(self, variable: xarray.DataArray, wraps: tuple[str, ...]) -> xarray.DataArray:
        sizes, values, dims = self._dataset.sizes, np.asarray(variable.values), [str(d) for d in variable.dims]
        for position, dim in enumerate(dims):
            axis = dim.removesuffix(FACE)
            if axis == dim:
                continue
            expected = sizes.get(axis, 0) + (axis not in wraps)
            if axis not in AXES or sizes[dim] != expected:
                raise InputOutputError(
                    f"{variable.name} has {sizes[dim]} values along {dim} and the dataset {sizes.get(axis, 0)} cells "
                    f"along {axis}; expected {expected} faces: write dataset.simjax.centered() first, then select."
                )
            values = between_faces(values, position, sizes[axis], axis in wraps)
            dims[position] = axis
        kept = {key: v for key, v in variable.attrs.items() if key not in ("grid", "location")}
        coords = {name: line for name, line in variable.coords.items() if not str(name).endswith(FACE)}
        coords |= {dim: self._dataset[dim] for dim in dims if dim in self._dataset.coords}
        coords.pop("grid", None)
        return xarray.DataArray(values, coords, dims, variable.name, {**kept, "grid_location": "center"})
