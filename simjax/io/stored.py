"""NetCDF files as xarray datasets that are read on demand, in which a damaged file is an error that names it."""

from __future__ import annotations

from pathlib import Path

import xarray
from xarray.backends import H5NetCDFStore
from xarray.backends.common import BackendArray
from xarray.backends.h5netcdf_ import H5NetCDFArrayWrapper
from xarray.core import indexing

from simjax.errors import InputOutputError


class _NamedArray(BackendArray):
    """An array in a file, whose errors name the file and the variable."""

    def __init__(self, stored: H5NetCDFArrayWrapper, name: str, path: Path):
        self._stored, self._name, self._path = stored, name, path
        self.shape, self.dtype = stored.shape, stored.dtype

    def __getitem__(self, key):
        try:
            return self._stored[key]
        except OSError as error:
            reason = " ".join(str(error).split())
            raise InputOutputError(
                f"{self._path}: {self._name!r} cannot be read ({reason}); a file of the run is damaged: "
                f"simjax.check_files({str(self._path.parent)!r}) names it, bring it back from a copy."
            ) from error


class _NamedStore(H5NetCDFStore):
    """A file whose arrays know its name."""

    def open_store_variable(self, name, var):
        variable = super().open_store_variable(name, var)
        full_name = f"{self._group}/{name}" if self._group else name
        array = _NamedArray(H5NetCDFArrayWrapper(name, self), full_name, Path(self._filename))
        data = indexing.LazilyIndexedArray(array)
        return xarray.Variable(variable.dims, data, variable.attrs, variable.encoding)


def open_stored(path: Path, group: str | None = None) -> xarray.Dataset:
    """A file, or a group of it, read on demand; InputOutputError where values cannot be read."""
    store = _NamedStore.open(str(path.absolute()), group=group, phony_dims="access")
    return xarray.open_dataset(store)
