"""What holds for every semilinear equation: alignment with the axes, orders, derivatives, precision, configuration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from configurations import changed, refusal
from semilinear import largest, line, numbers, on, run, sample

import simjax as sj
from simjax.config import validate
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.spectral.nonlinear_waves import KortewegDeVries, KuramotoSivashinsky, ViscousBurgers
from simjax.models.spectral.patterns import GrayScott, SwiftHohenberg
from simjax.models.spectral.phase_fields import AllenCahn, CahnHilliard
from simjax.models.spectral.schroedinger import Params, Schroedinger
from simjax.ops.scaling import scaled
from simjax.stepping.simulate import Schedule, simulate

# ---- the same along every axis

LENGTH, CELLS = 6.0, 24
ALONG = [
    (ViscousBurgers, {"viscosity": 0.05}, {}, ((2, 1), (3, 0), (3, 2))),
    (KortewegDeVries, {}, {}, ((2, 0), (3, 0))),
    (KuramotoSivashinsky, {}, {"integral": True}, ((2, 0), (2, 1), (3, 1))),
    (AllenCahn, {"epsilon": 0.3}, {}, ((2, 1), (3, 0))),
    (CahnHilliard, {"epsilon": 0.3}, {}, ((2, 0), (3, 2))),
    (SwiftHohenberg, {"wavenumber": 1.5, "asymmetry": 0.5}, {}, ((2, 1), (3, 1))),
    (GrayScott, {"diffusivity_u": 0.02, "diffusivity_v": 0.01}, {}, ((2, 0), (2, 1), (3, 2))),
    (Schroedinger, None, {}, ((2, 0), (2, 1), (3, 0), (3, 1), (3, 2))),
]


def profile(x, number):
    """A wave without symmetries, one for each component."""
    return 0.5 + 0.4 * np.sin(2 * np.pi * x / LENGTH + number) * np.exp(np.cos(4 * np.pi * x / LENGTH - number) - 1)


def fields_after(kind, params, options, grid, axis):
    model = on(grid, kind, **options)
    formulas = {
        name: (lambda *x, number=number: profile(x[axis], number))
        for number, name in enumerate(model.component_layouts())
    }
    return run(model, params, sample(model, **formulas), 0.03, 0.01)[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind, changes, options, axes", ALONG, ids=[case[0].__name__ for case in ALONG])
def test_waves_along_each_axis_are_those_in_one_dimension(kind, changes, options, axes):
    params = Params(jnp.asarray(-1.2)) if changes is None else numbers(kind, **changes)
    expected = fields_after(kind, params, options, line(CELLS, 0, LENGTH), 0)
    for ndim, axis in axes:
        shape, upper = [8] * ndim, [5.0] * ndim
        shape[axis], upper[axis] = CELLS, LENGTH
        found = fields_after(kind, params, options, Grid(shape, None, upper), axis)
        for name, values in expected.items():
            along = values[0].reshape([-1 if i == axis else 1 for i in range(ndim)])
            # Twelve evaluations of terms of order one, by transforms of other lengths.
            np.testing.assert_allclose(found[name][0], np.broadcast_to(along, shape), atol=1e-13, rtol=0)


# ---- orders in time


EXPONENTIAL, IMPLICIT = ("etdrk1", "etdrk2", "etdrk3", "etdrk4"), ("imex_euler", "ars222", "ars343", "ars443")


# Implicit-explicit schemes show their order once dt k^4 < 1, which the shortest waves, of k^4 = 67, make late.
@pytest.mark.parametrize(
    "name, dt",
    [
        pytest.param(name, dt, marks=[] if name in ("etdrk4", "ars443") else pytest.mark.slow)
        for names, dt in ((EXPONENTIAL, 0.05), (IMPLICIT, 0.0125))
        for name in names
    ],
)
@pytest.mark.slow
def test_schemes_have_their_order_on_kuramoto_sivashinsky(name, dt):
    model, params, end = on(line(32, 0, 22), KuramotoSivashinsky), numbers(KuramotoSivashinsky), 0.5
    start = sample(model, u=lambda x: np.cos(2 * np.pi * x / 22) + 0.5 * np.sin(6 * np.pi * x / 22))
    exact = run(model, params, start, end, 1 / 320)[1]["u"]
    found = [run(model, params, start, end, step, integrator=name)[1]["u"] for step in (dt, dt / 2)]
    errors = [largest(u - exact) for u in found]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(INTEGRATORS[name].order, abs=0.3), errors


# ---- derivatives


@pytest.mark.slow
def test_feed_and_kill_of_gray_scott_have_the_derivatives_that_differences_show():
    model = on(Grid((16, 12), None, (1.0, 0.7)), GrayScott)
    params = numbers(GrayScott, diffusivity_u=2e-4, diffusivity_v=1e-4)
    start = sample(
        model, u=lambda x, y: 0.6 + 0.3 * np.cos(2 * np.pi * x), v=lambda x, y: 0.3 + 0.2 * np.sin(2 * np.pi * y / 0.7)
    )

    def loss(params):
        end = simulate(model, INTEGRATORS["etdrk3"], params, start, Schedule(10.0, dt=1.0), frames=1).state
        return model.mean_product(end["v"], end["u"])

    differentiated = jax.jit(jax.value_and_grad(loss), compiler_options=QUICK)
    gradient = differentiated(params)[1]
    for name in ("feed", "kill", "diffusivity_v"):
        step = 1e-4 * params[name]
        shifted = [float(differentiated({**params, name: params[name] + h})[0]) for h in (step, -step)]
        # The step's square, 1e-8 of the scale on which the loss curves, and rounding over the step.
        np.testing.assert_allclose(gradient[name], (shifted[0] - shifted[1]) / (2 * step), rtol=1e-7)


# ---- single precision


@pytest.mark.parametrize(
    "kind, changes, grid, dt",
    [
        # Largest |dt L|: 3e3 and 2e4, damped to nothing; 1e3 radians of a wave that is resolved by none.
        (CahnHilliard, {"epsilon": 0.01}, line(512, 0, 1), 1e-4),
        pytest.param(KuramotoSivashinsky, {}, line(512, 0, 60), 0.02, marks=pytest.mark.slow),
        pytest.param(
            KortewegDeVries,
            {"dispersion": 4.84e-4, "nonlinearity": 1.0},
            line(256, 0, 2),
            1e-3,
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_stiff_equations_run_in_single_precision(kind, changes, grid, dt):
    model, results = on(grid, kind), []
    (length,) = grid.lengths
    for dtype in (np.float32, np.float64):
        params = numbers(kind, dtype, **changes)
        x = grid.coordinates(0, 0.5)
        field = np.cos(2 * np.pi * x / length) + 0.3 * np.sin(6 * np.pi * x / length)
        state = model.state_from({"u": (jnp.asarray(field, dtype),)}, params)
        final, seen = run(model, params, state, 100 * dt, dt)
        assert jnp.finfo(final["u"].dtype).dtype == seen["u"].dtype == dtype
        results.append(seen["u"][0])
    # A rounding of 6e-8 in each of 100 steps and 400 transforms of values up to 1.3.
    assert largest(results[0] - results[1]) < 2e-5


# ---- configurations


def configuration(name, **changes):
    base = {"model": name, "grid": {"shape": [16]}, "time": {"end": 0.1, "output_every": 0.1, "dt": 0.05}}
    return changed(base, changes)


def test_mistakes_are_told():
    assert "physics.form=height" in refusal(configuration("kuramoto_sivashinsky", **{"grid.shape": [8, 8]}))
    assert validate(configuration("kuramoto_sivashinsky", **{"grid.shape": [8, 8], "physics.form": "height"}))
    assert "time.dt is missing" in refusal(configuration("gray_scott", **{"time.dt": None}))
    assert "expected one of etdrk4" in refusal(configuration("allen_cahn", **{"time.integrator": "rk4"}))
    assert "one of periodic" in refusal(configuration("allen_cahn", **{"boundaries.x": "neumann"}))
    assert "physics.epsilon = 0" in refusal(configuration("cahn_hilliard", **{"physics.epsilon": 0}))
    assert "forcing.psi" in refusal(configuration("schroedinger", **{"forcing.psi": 1}))


@pytest.mark.slow
def test_a_trap_from_a_formula_holds_a_packet(tmp_path):
    """The ground state of the potential x^2 / 2, in the coefficients of the configuration."""
    run = sj.Simulation(
        validate(
            configuration(
                "schroedinger",
                **{
                    "grid": {"shape": [128], "lower": [-8], "upper": [8]},
                    "physics.interaction": 0.0,
                    "initial.real_part": "pi**(-0.25)*exp(-x**2/2)",
                    "coefficients.potential": "x**2/2",
                    "exact.real_part": "pi**(-0.25)*exp(-x**2/2)*cos(t/2)",
                    "time.dt": 0.005,
                    "precision": "float64",
                    "output.root": str(tmp_path),
                    "output.report": False,
                    "output.animation": False,
                },
            )
        )
    ).run()
    # Steps of 0.005 leave 1e-10 of a packet that moves (see test_schroedinger), at its widest energy 32 dt = 0.16.
    assert float(run.ds["error_real_part"].isel(time=-1)) < 1e-8
    assert "courant" not in run.ds, "there is no such number"


# ---- one's own equation


class Kawahara(sj.SpectralModel):
    """Kawahara: du/dt = -u du/dx - d3u/dx3 + d5u/dx5."""

    parameters = {"fifth": 1.0}

    def symbol(self, k, params):
        rate = k[0] ** 3 + params["fifth"] * k[0] ** 5
        return {"u": jax.lax.complex(jnp.zeros_like(rate), rate)}

    def nonlinear(self, t, k, state, params):
        u = self.to_grid(state["u"])
        return {"u": -0.5 * self.derivative(k[0], self.to_spectrum(u * u))}


@pytest.mark.slow
def test_an_equation_of_ones_own_is_forced_varied_and_compared_with_its_solitary_wave(tmp_path):
    """(105 / 169) / cosh^4((x - 36 t / 169) / (2 sqrt(13))): Kawahara (1972), J. Phys. Soc. Japan 33, 260."""
    result = sj.configure(
        Kawahara,
        grid={"shape": [128], "lower": [-70], "upper": [70]},
        initial={"u": "105/169/cosh(x/(2*sqrt(13)))**4"},
        exact={"u": "105/169/cosh((x - 36/169*t)/(2*sqrt(13)))**4"},
        time={"end": 5.0, "output_every": 5.0, "dt": 0.05},
        ensemble={"size": 2, "vary": {"physics.fifth": {"values": [1.0, 2.0]}}},
        precision="float64",
        output={"root": str(tmp_path), "report": False, "animation": False},
    ).run()
    error = result.ds["error_u"].isel(time=-1).values
    # Tails of 16 exp(-4 * 70 / 7.2) = 2e-16 at the box's edge; the spectrum ends at k = 1.9, at 1e-7 or so.
    assert error[0] < 1e-6 and error[1] > 0.01


def test_sources_of_ones_own_equation_come_from_formulas(tmp_path):
    class Relaxation(sj.SpectralModel):
        """du/dt = -r u + f."""

        parameters = {"r": 2.0}

        def symbol(self, k, params):
            return {"u": -params["r"] + 0 * k[0]}

        def nonlinear(self, t, k, state, params):
            return {"u": scaled(0.0, state["u"])}

    settings = {
        "grid": {"shape": [16]},
        "time": {"end": 0.5, "output_every": 0.5, "dt": 0.1},
        "precision": "float64",
        "output": {"root": str(tmp_path), "report": False, "animation": False},
    }
    forced = sj.configure(Relaxation, forcing={"u": "cos(2*pi*x)"}, **settings).run()
    x = forced.ds["x"].values
    # A steady source is exact under exponential time differencing.
    expected = np.cos(2 * np.pi * x) * (1 - np.exp(-1.0)) / 2
    np.testing.assert_allclose(forced.ds["u"].isel(time=-1).values, expected, atol=1e-14)


def test_forcing_of_an_equation_that_takes_none_is_refused():
    class Decay(sj.CenteredModel):
        """du/dt = -u."""

        fields = ("u",)

        def rhs(self, t, state, params):
            return {"u": -state["u"]}

        def stable_dt(self, state, params):
            return 1.0

    with pytest.raises(sj.ConfigurationError, match=r"forcing\.u"):
        sj.configure(Decay, grid={"shape": [8]}, forcing={"u": 1}, time={"end": 1.0, "output_every": 1.0})
