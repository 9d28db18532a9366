"""Fields in files, read whole."""

from simjax.io.initial import field_file, require_finite


def read_field(path, variable, grid, offset, **options):
    """The values of a component on the whole grid, and what was done to them."""
    found = field_file(path, variable, grid, offset, **options)
    values = found.read(tuple((0, n) for n in grid.shape))
    require_finite([found])
    return values, found.notes
