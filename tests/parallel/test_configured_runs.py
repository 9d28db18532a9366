"""Configured runs as functions: what they observe and their gradients are the same on any devices.

The equivalence tests run models that are built by hand; here are those that configurations name, with everything that
they observe, and particles in the cells that are chosen for so many devices.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configured_cases import WRITTEN, configured, model_of, observed

from simjax.config import list_experiments
from simjax.core.domain import Domain
from simjax.driver.start.build import named_values
from simjax.grid import Grid
from simjax.models.particle_model import family_of
from simjax.models.registry import HOMES
from simjax.particles.cells import Cells

# What is in `WRITTEN` in a plane, as a spectrum along a line cannot be cut, or on more cells. Inverse problems are of
# models that others have too, but for one.
REPLACED = ("burgers", "sod", "solitons", "zabusky_kruskal", "viscous_burgers", "kuramoto_sivashinsky")
NAMES = [
    *WRITTEN,
    "inverse_unmixing",
    *(e.name for e in list_experiments() if e.name not in REPLACED and not e.name.startswith("inverse_")),
]
# Of the cheapest is traced in every run of the tests what they observe, with the slow ones of one of each model.
USUAL = ("cahn_hilliard", "gray_scott", "dye")
ONE_OF_EACH = (
    "burgers",
    "viscous_burgers",
    "korteweg_de_vries",
    "kuramoto_sivashinsky",
    "gas",
    "p3m",
    "lennard_jones",
    "fluid",
    "condensate",
    "allen_cahn",
    "swift_hohenberg",
    "salt_fingers",
    "layered_medium",
    "double_slit",
    "lens",
    "dielectric_ball",
    "turbulence_2d",
    "turbulence_3d",
    "plume",
    "inverse_unmixing",
    "landau_damping",
    "weibel",
    "taylor_green_sph",
)


def every(usual):
    """All of them, `usual` ones in every run of the tests."""

    def marks(name):
        return () if name in usual else (pytest.mark.slow if name in (*USUAL, *ONE_OF_EACH) else pytest.mark.long,)

    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in NAMES])


@pytest.mark.parametrize("name", ["p3m", "mesh_charges", "ewald"])
def test_sums_of_far_forces_do_not_depend_on_the_devices_though_cells_of_particles_do(name):
    """Their mesh, its spacing, the splitting and the cutoff; nothing is compiled."""

    def chosen(**sizes):
        config = configured(name, cut=False).config
        family = family_of(config)
        values = {key: jnp.asarray(value) for key, value in named_values(config).items()}
        blocks = [sizes.get(axis, 1) for axis in "xyz"]
        capacities = family.first_capacities(family.start(), named_values(config), blocks)
        grid = Grid(capacities.cells, family.bounds.lower, family.bounds.upper)
        cells = Cells(Domain(grid), capacities.cell_capacity, family.bounds.periodic)
        model, _ = family.model(cells, capacities, values)
        found = model.attraction if name == "p3m" else model.electrostatics
        mesh = () if name == "ewald" else found.sum.far.mesh(cells).domain.grid.shape
        return capacities.cells, (jax.tree.structure(found.sum), mesh)

    (one, expected), (two, found) = chosen(), chosen(x=2)
    assert one == (3, 3, 3) and two == (2, 3, 3)
    assert found == expected
    assert chosen(x=2, y=2, z=2) == ((2, 2, 2), expected)


def test_every_model_is_among_them():
    # Of simjax: other tests of this process may have declared models of their own.
    assert {model_of(name) for name in (*USUAL, *ONE_OF_EACH)} == {*HOMES}


@every(USUAL)
def test_what_is_observed_is_the_same_on_all_devices(name):
    """By its type, which says whether numbers differ between devices; of fields nothing is compiled."""
    run = observed(name, cut=True)
    found = jax.eval_shape(run, run.values).observed
    assert found and all(len(u.shape) and u.shape[0] == len(run.times) for u in jax.tree.leaves(found))


VANISHING = 1e-11


def outcome(name, cut, scale=None):
    """What is observed, and the gradient of a sum of all of it with weights; in it, all numbers count alike."""
    run = observed(name, cut=cut)

    def loss(values, scale):
        found = {key: u for key, u in run(values).observed.items() if jnp.issubdtype(u.dtype, jnp.floating)}
        weights = {key: np.cos(1.3 * np.arange(u.size) + 0.4).reshape(u.shape) for key, u in found.items()}
        terms = [jnp.sum(jnp.asarray(weights[key], u.dtype) * u) / scale[key] for key, u in found.items()]
        return sum(terms), found

    if scale is None:
        largest = {key: np.abs(u).max() for key, u in jax.jit(lambda: run().observed)().items()}
        # What vanishes, such as a momentum, is rounding: scaled to one, it would rule the gradient.
        scale = {key: u if u > VANISHING else 1.0 for key, u in largest.items()}
    (_, found), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(run.values, scale)
    return jax.tree.map(np.asarray, found), jax.tree.map(np.asarray, gradient), scale


@every(())
def test_a_run_and_its_gradient_do_not_depend_on_the_devices(name):
    expected, slopes, scale = outcome(name, False)
    found, gradient, _ = outcome(name, True, scale)
    # Sums in another order: thousands of roundings of what is summed. What vanishes is a sum of terms of order one.
    for key, u in expected.items():
        assert np.abs(found[key] - u).max() <= 1e-10 * scale[key] + 1e-13, key
    largest = max(np.abs(u).max() for u in slopes.values())
    assert largest > 0
    for key, u in slopes.items():
        assert np.abs(gradient[key] - u) <= 1e-8 * max(np.abs(u), 1e-3 * largest), key
