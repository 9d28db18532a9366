"""The instrument along bodies in runs: on devices and in ensembles, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configurations import FLOW, changed, refusal

import simjax as sj
from simjax.errors import ConfigurationError
from simjax.instruments.places import last_not_above

AROUND = {"body_surface": {"around": [0.5, 0.47], "points": 7}, "every": "step", "name": "around"}
NEAR = {
    "body_surface": {"points": [[0.2, 0.3], [0.6, 0.55]]},
    "of": ["temperature", "temperature_flux"],
    "name": "near",
}
WARM = {
    "grid": {"shape": [16, 16]},
    "physics": {"viscosity": 0.05, "diffusivity": 0.05, "gravity": [0.0, -1.0]},
    "parameters": {"radius": 0.2},
    "coefficients": {"solid": "sqrt((x - 0.5)**2 + (y - 0.47)**2) - radius", "solid_temperature": 1},
    "initial": {"velocity": ["1", "0"], "temperature": "sin(2*pi*x)"},
    "time": {"end": 0.02, "output_every": 0.02, "dt": 0.01},
    "precision": "float64",
    "outputs": [AROUND, NEAR],
}


def seen(root, **changes):
    output = {"root": str(root), "report": False, "animation": False}
    folder = sj.configure("boussinesq", **{**WARM, **changes}, output=output).run().folder
    found = {}
    for name in ("around", "near"):
        with sj.open_output(folder, name) as dataset:
            found[name] = dataset.load()
    return found


@pytest.mark.slow
def test_readings_of_members_on_devices_are_those_of_one_run(tmp_path):
    radii = {"values": [0.2, 0.23]}
    together = seen(tmp_path, ensemble={"size": 2, "vary": {"parameters.radius": radii}}, mesh={"x": 2, "y": 2})
    alone = seen(tmp_path, parameters={"radius": 0.23})
    for name, dataset in alone.items():
        for variable, wanted in dataset.data_vars.items():
            # Solves of the pressure to a hundred roundings of it, on other blocks: 1e-13 of what is read, over h twice.
            np.testing.assert_allclose(together[name][variable].sel(member=1), wanted, rtol=1e-8, atol=1e-8)
    around, near = alone["around"], alone["near"]
    assert around.pressure.dims == ("time", "angle") and around.sizes == {"time": 3, "angle": 7}
    assert near.temperature_flux.dims == ("station", "time") and near.temperature_flux.units == "K m s-1"
    # Distances linear between centres are off by h^2 / (8 r) = 0.002.
    np.testing.assert_allclose(np.hypot(around.position_x - 0.5, around.position_y - 0.47), 0.23, atol=4e-3)
    # At the surface it is that given, not that of the fluid beside: rounding.
    np.testing.assert_allclose(near.temperature, 1, rtol=1e-12)


def test_what_finds_no_surface_is_refused(tmp_path):
    bodies = {"coefficients.solid": "sqrt((x - 0.5)**2 + (y - 0.47)**2) - 0.2"}
    looking = [{"body_surface": {"around": [0.5, 0.5], "points": 8}}]
    assert "write coefficients.solid" in refusal(changed(FLOW, {"outputs": looking}))
    message = refusal(changed(FLOW, {**bodies, "outputs": [{"body_surface": {"around": [0.5, 0.5]}}]}))
    assert "{around: [x, y], points: 64}" in message and "nearest point of the surface" in message
    dye = [{"body_surface": {"points": [[0.5, 0.5]]}, "of": "vorticity"}]
    assert "shear_stress" in refusal(changed(FLOW, {**bodies, "outputs": dye}))
    for given, told in (
        ({"around": [0.9, 0.9], "points": 4}, r"finds no surface from \[0.9, 0.9\] along a ray at 0 degrees"),
        ({"points": [[0.5, 0.47]]}, r"finds no surface from \[0.5, 0.47\] along the gradient of the distance"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            sj.configure(
                "boussinesq", **{**WARM, "outputs": [{"body_surface": given}]}, output={"root": str(tmp_path)}
            ).run()


def test_places_are_found_in_the_memory_of_their_number():
    """Along a stretched axis: no array is larger than that of the places, whatever the number of cells."""
    generator = np.random.default_rng(5)
    for count in (1, 2, 3, 7, 8, 9, 64, 65):
        values = np.sort(generator.random(count))
        around = [np.nextafter(values, sign) for sign in (-1, 2)]
        positions = np.concatenate([generator.random(100) * 1.4 - 0.2, values, *around])
        found = last_not_above(values, jnp.asarray(positions))
        np.testing.assert_array_equal(found, np.searchsorted(values, positions, side="right") - 1)
    program = jax.make_jaxpr(lambda x: last_not_above(np.linspace(0, 1, 500), x))(jnp.zeros(1000))
    largest = max(np.prod(v.aval.shape) for equation in program.eqns for v in equation.outvars)
    assert largest == 1000
