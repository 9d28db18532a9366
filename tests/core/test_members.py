"""Statistics over members: those of numpy, wherever the members are."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import simjax as sj
from simjax.core.ensemble_axis import Members

SHARES = (0.0, 0.05, 0.5, 0.9, 1.0)
EXPECTED = {
    "mean": lambda u: np.nanmean(u, axis=0),
    "variance": lambda u: np.nanvar(u, axis=0),
    "min": lambda u: np.nanmin(u, axis=0),
    "max": lambda u: np.nanmax(u, axis=0),
    "quantiles": lambda u: np.nanquantile(u, SHARES, axis=0),
}


def values():
    """Eight members at 3 x 5 places, some of them lost, and one place without any."""
    u = np.random.default_rng(3).normal(size=(8, 3, 5)) + 100.0
    u[2], u[5, 0, 0], u[:, 2, 4] = np.nan, np.nan, np.nan
    return u


@pytest.mark.parametrize("devices", [1, 4, 8])
@pytest.mark.filterwarnings("ignore:(Mean of empty|All-NaN|Degrees of freedom)")
@pytest.mark.slow
def test_statistics_are_those_of_numpy_on_any_number_of_devices(devices):
    u, mesh = values(), sj.make_mesh({"ensemble": devices})
    over = Members() if mesh is None else Members("ensemble", devices)

    def all_of(u):
        return {name: over.quantiles(u, SHARES) if name == "quantiles" else getattr(over, name)(u) for name in EXPECTED}

    spec = PartitionSpec("ensemble" if devices > 1 else None)
    found = sj.distribute(all_of, mesh, in_specs=spec, out_specs=PartitionSpec())(jnp.asarray(u))
    for name, expected in EXPECTED.items():
        # Sums of eight numbers near 100 in another order: a few units in the last place of them, and of their squares.
        np.testing.assert_allclose(found[name], expected(u), rtol=1e-14, atol=1e-13, err_msg=name)
        wrong = np.isnan(np.asarray(found[name]))
        assert wrong[..., 2, 4].all() and np.count_nonzero(wrong) == wrong[..., 2, 4].size, name
