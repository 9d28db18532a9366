"""A configured run as a function: its gradient against differences, on one device and on a mesh; what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.errors import ConfigurationError, NumericalError

DYE = [
    "grid.shape=[8,8]",
    "precision=float64",
    "exact=null",
    "parameters={depth: 1.5}",
    "time.courant=null",
    "initial={concentration: 'depth*sin(2*pi*x)*cos(2*pi*y)'}",
    "time.dt=0.01",
    "time.end=0.04",
    "time.output_every=0.02",
]

FEW = [
    "box.upper=[4.8,4.8]",
    "particles.placement=square",
    "particles.count=16",
    "particles.temperature=0.3",
    "physics.cutoff=1.7",
    "physics.mode=force_shifted",
    "precision=float64",
    "time.end=0.04",
    "time.output_every=0.02",
    "time.dt=0.01",
]


def of(*overrides, **options):
    return sj.load("dye", [*DYE, *overrides]).differentiable(**options)


def loss_of(run):
    return lambda values: jnp.mean(run(values).observed["concentration"][-1] ** 2)


@pytest.fixture(scope="module")
def run():
    return of()


def test_the_gradient_is_that_of_differences(run):
    values = {name: run.values[name] for name in ("diffusivity", "depth", "velocity_x")}
    gradient = jax.grad(loss_of(run))(values)
    for name, value in values.items():
        # Central differences: h^2 times a third derivative of order one to a thousand, and rounding 1e-16 / h.
        h = 1e-5
        ahead, behind = (float(loss_of(run)({**values, name: value + s * h})) for s in (1, -1))
        assert float(gradient[name]) == pytest.approx((ahead - behind) / (2 * h), rel=1e-6, abs=1e-9), name
    # The loss is a square of the depth.
    value = float(loss_of(run)({}))
    assert float(gradient["depth"]) == pytest.approx(2 * value / 1.5, rel=1e-12)


@pytest.mark.slow
def test_it_is_the_run_of_the_simulation(run, tmp_path):
    quiet = ["output.animation=false", "output.report=false", f"output.root={tmp_path}"]
    written = sj.load("dye", [*DYE, *quiet]).run().ds
    found = run().observed
    np.testing.assert_allclose(run.times, written.time, rtol=0, atol=1e-15)
    # Another program, which may round otherwise.
    np.testing.assert_allclose(found["concentration"].transpose(0, 2, 1), written.concentration, rtol=0, atol=1e-14)
    np.testing.assert_allclose(found["mean_concentration"], written.mean_concentration, rtol=0, atol=1e-15)


@pytest.mark.slow
def test_fields_and_numbers_on_a_mesh_as_on_one_device():
    def gradient(*overrides):
        run = of(*overrides, fields=["initial.concentration"])

        def loss(values, fields):
            return jnp.sum(run(values, fields).observed["concentration"][-1] ** 2)

        u = run.fields["initial.concentration"][0]
        return jax.grad(loss, argnums=(0, 1))({"diffusivity": run.values["diffusivity"]}, {"initial.concentration": u})

    alone, cut = gradient(), gradient("mesh.x=2", "mesh.y=2")
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(cut), strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-13 * float(np.abs(a).max()))  # sums in another order


@pytest.mark.slow
def test_a_failed_run_raises_and_is_nan_inside_a_transform():
    run = of("physics.diffusivity=0.1", "initial={concentration: 'depth*sin(2*pi*x) + 0.1*cos(8*pi*x)'}")
    unstable = {"diffusivity": 1e80}
    with pytest.raises(NumericalError, match=r"not a number, in frame 0 .* Write a smaller time.dt"):
        run(unstable)
    loss, gradient = jax.jit(jax.value_and_grad(loss_of(run)))(unstable)
    assert np.isnan(loss) and np.isnan(gradient["diffusivity"])


def test_what_it_cannot_take_is_refused(run):
    with pytest.raises(ConfigurationError, match=r"values\['viscosity'\]: expected one of diffusivity"):
        run({"viscosity": 1.0})
    with pytest.raises(ConfigurationError, match=r"differentiable\(fields="):
        run(fields={"initial.concentration": np.zeros((8, 8))})
    with pytest.raises(ConfigurationError, match=r"shape \(8, 8\)"):
        of(fields=["initial.concentration"])(fields={"initial.concentration": np.zeros(3)})
    with pytest.raises(ConfigurationError, match="got 'colour'"):
        of(variables=["colour"])
    with pytest.raises(ConfigurationError, match="initial.velocity: expected a field of the run"):
        of(fields=["initial.velocity"])
    with pytest.raises(ConfigurationError, match="initial.position, initial.velocity"):
        sj.load("lennard_jones", FEW).differentiable(fields=["initial.force"])


@pytest.mark.slow
def test_what_an_instrument_reads_is_observed_by_its_name(tmp_path):
    """As the run of the simulation samples it, cut or not, and with the gradient of differences."""
    looking = [
        "outputs=[{box_mean: {lower: [0, 0], upper: [0.3, 0.5]}, of: concentration, name: box}, "
        "{slice: {x: 0.4}, of: concentration}, {histogram: {bins: 2, lower: 0, upper: 1}, of: concentration}]"
    ]
    quiet = ["output.animation=false", "output.report=false", f"output.root={tmp_path}"]
    folder = sj.load("dye", [*DYE, *quiet, *looking]).run().folder
    run = of(*looking, variables=["box", "slice"])
    for found in (run(), of(*looking, "mesh.x=2", "mesh.y=4", variables=["box", "slice"])()):
        assert "concentration" not in found.observed
        # Another program, which may round otherwise.
        for name in ("box", "slice"):
            with sj.open_output(folder, name) as samples:
                read = found.observed[name]["concentration"]
                np.testing.assert_allclose(read, samples.concentration, rtol=0, atol=1e-14)

    def mean(diffusivity):
        return run({"diffusivity": diffusivity}).observed["box"]["concentration"][-1]

    value, h = float(run.values["diffusivity"]), 1e-5
    slope = (float(mean(value + h)) - float(mean(value - h))) / (2 * h)
    # h^2 times a third derivative of order a thousand, and rounding 1e-16 / h.
    assert float(jax.grad(mean)(value)) == pytest.approx(slope, rel=1e-6, abs=1e-9) and abs(slope) > 1e-3
    with pytest.raises(ConfigurationError, match="expected names among concentration, box, slice, got 'histogram'"):
        of(*looking, variables=["histogram"])


@pytest.mark.slow
def test_a_run_of_particles_is_a_function_too(tmp_path):
    run = sj.load("lennard_jones", FEW).differentiable(fields=["initial.position"], variables=["position"])
    quiet = ["output.animation=false", "output.report=false", f"output.root={tmp_path}"]
    written = sj.load("lennard_jones", [*FEW, *quiet]).run().ds
    observed = jax.jit(lambda x: run({}, {"initial.position": x}).observed)(run.fields["initial.position"])
    assert observed["position"].shape == (3, 2, 16)
    # Another program, which may round otherwise; energies are of order ten.
    np.testing.assert_allclose(observed["energy"], written.energy, rtol=0, atol=1e-12)

    def energy(x):
        return run({}, {"initial.position": (x, run.fields["initial.position"][1])}).observed["energy"][-1]

    x = run.fields["initial.position"][0] + 0.02 * jnp.sin(jnp.arange(16.0))
    value, slope = jax.jit(jax.value_and_grad(energy))(x)
    along = jnp.cos(jnp.arange(16.0))
    compiled = jax.jit(energy)
    moved = [float(compiled(x + s * 1e-5 * along)) for s in (1, -1)]
    # As of differences above, with third derivatives of steep forces.
    assert (moved[0] - moved[1]) / 2e-5 == pytest.approx(float(slope @ along), rel=1e-6)
