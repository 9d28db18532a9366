"""Potentials, mixtures and dynamics that a configuration names."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simjax.config import load_config
from simjax.driver.start.build import named_values
from simjax.errors import ConfigurationError
from simjax.models.molecular.langevin import Brownian
from simjax.models.molecular.molecular_setup import build_dynamics, build_potential
from simjax.models.molecular.pair_potentials import LennardJones
from simjax.models.placement import place

MIXED = ["particles.fractions=[0.8,0.2]"]
LIQUID = "physics.potential.lennard_jones"


def energy(*overrides, r=1.2, here=0, there=0):
    """Energy of a pair at distance r of two species."""
    config = load_config("lennard_jones", [*MIXED, *overrides])
    values = {name: jnp.asarray(value) for name, value in named_values(config).items()}
    pair = jnp.asarray([here, there], jnp.int32)

    @jax.jit
    def of_pair(values):
        potential, parameters = build_potential(config, values)
        return potential.energy(jnp.asarray(r * r), pair[0], pair[1], parameters)

    return float(of_pair(values))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], 4 * (1.2**-12 - 1.2**-6)),
        (["physics.potential.weeks_chandler_andersen.sigma=1.1"], 4 * ((1.1 / 1.2) ** 12 - (1.1 / 1.2) ** 6) + 1),
        (["physics.potential={soft_sphere:{power:9,epsilon:2}}"], 2 * 1.2**-9),
        (["physics.potential={morse:{steepness:5,bond_length:1.1}}"], (1 - math.exp(-0.5)) ** 2 - 1),
        (
            ["physics.potential=yukawa", "physics.potential.yukawa.strength=3", "physics.potential.yukawa.screening=2"],
            3 * math.exp(-2.4) / 1.2,
        ),
        (["physics.potential={buckingham:{strength:900,range:0.2,dispersion:2}}"], 900 * math.exp(-6) - 2 / 1.2**6),
    ],
)
def test_energies_of_pairs(overrides, expected):
    # A few roundings in float64, powers of twelve of the distance among them.
    assert energy(*overrides) == pytest.approx(expected, rel=1e-13)


@pytest.mark.slow
def test_mixtures():
    # Kob and Andersen's liquid: the unlike pair is neither rule's.
    liquid = [f"{LIQUID}.species_epsilon=[1,0.5]", f"{LIQUID}.species_sigma=[1,0.88]"]
    crossed = [*liquid, f"{LIQUID}.cross_epsilon=[1.5]", f"{LIQUID}.cross_sigma=[0.8]", f"{LIQUID}.epsilon=2"]

    def expected(epsilon, sigma):
        return 4 * epsilon * ((sigma / 1.2) ** 12 - (sigma / 1.2) ** 6)

    for here, there, epsilon, sigma in ((0, 0, 2, 1), (0, 1, 3, 0.8), (1, 0, 3, 0.8), (1, 1, 1, 0.88)):
        assert energy(*crossed, here=here, there=there) == pytest.approx(expected(epsilon, sigma), rel=1e-13)
    # Otherwise Lorentz's and Berthelot's.
    assert energy(*liquid, here=1) == pytest.approx(expected(math.sqrt(0.5), 0.94), rel=1e-13)


def test_brownian_motion():
    config = load_config("lennard_jones", ["physics.thermostat={brownian:{temperature:0.5,friction:2}}", "seed=3"])
    values = {name: jnp.asarray(value) for name, value in named_values(config).items()}
    dynamics, bath = build_dynamics(config, values)
    assert isinstance(dynamics, Brownian) and (float(bath.temperature), float(bath.friction), int(bath.seed)) == (
        0.5,
        2.0,
        3,
    )


def test_a_diamond_has_four_partners():
    config = load_config("lennard_jones", ["particles.placement=diamond", "particles.count=64", "box.upper=[8,8,8]"])
    apart = (x := place(config).position)[:, :, None] - x[:, None]
    apart -= 8 * np.round(apart / 8)
    square = np.sum(apart**2, axis=0)
    # Two cells of 4 along each axis; neighbours are a quarter of a diagonal apart, (sqrt(3) a / 4)^2 = 3.
    near = np.isclose(square, 3.0)
    assert np.all(near.sum(axis=0) == 4) and np.all((square > 2.9) | np.eye(64, dtype=bool))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([f"{LIQUID}.power=9"], "physics.potential.lennard_jones.power: unknown key; known here: epsilon, sigma"),
        (["physics.power=9"], "physics.power: unknown key; known here: potential, mode, cutoff, thermostat"),
        (["physics.potential=yukwa"], "physics.potential = 'yukwa': expected one of .*; did you mean 'yukawa'"),
        (
            ["physics={potential:{yukawa:{},morse:{}}}"],
            "'yukawa', 'morse'.: expected one potential; write",
        ),
        (
            ["physics.potential.yukawa.strength=strong"],
            "yukawa.strength = 'strong': expected a finite",
        ),
        (["physics.potential=stillinger_weber", "physics.mode=shifted"], "physics.mode = shifted: expected truncated"),
        (["physics.potential={stillinger_weber:{sigma:2}}"], "physics.cutoff = 2.5: .* reaches 3.6"),
        (["physics.potential={weeks_chandler_andersen:{species_sigma:[1,3]}}"], "reaches 3.36739"),
        ([f"{LIQUID}.species_epsilon=[1]"], "lennard_jones.species_epsilon = .1.0.: expected 2 number"),
        ([f"{LIQUID}.species_sigma=[1,1]", f"{LIQUID}.cross_epsilon=[1,2,3]"], "expected 1 number.s., one per pair of"),
        ([f"{LIQUID}.cross_sigma=[1]"], "expected with .*species_sigma; write species_sigma=.1.0, 1.0. for"),
    ],
)
def test_what_does_not_go_together_is_told(overrides, said):
    with pytest.raises(ConfigurationError, match=said):
        load_config("lennard_jones", [*MIXED, *overrides])


def test_numbers_of_a_mixture_have_gradients():
    config = load_config("lennard_jones", [*MIXED, f"{LIQUID}.species_sigma=[1,0.88]"])
    values = {name: jnp.asarray(value) for name, value in named_values(config).items()}

    def total(epsilon, sigma):
        potential, parameters = build_potential(
            config, {**values, "potential_epsilon": epsilon, "potential_sigma": sigma}
        )
        assert isinstance(potential, LennardJones)
        return potential.energy(jnp.asarray(1.44), jnp.asarray(0, jnp.int32), jnp.asarray(1, jnp.int32), parameters)

    by_epsilon, by_sigma = jax.grad(total, (0, 1))(values["potential_epsilon"], values["potential_sigma"])
    scaled = 0.94 / 1.2
    # Exact but for roundings of powers of twelve.
    assert float(by_epsilon) == pytest.approx(4 * (scaled**12 - scaled**6), rel=1e-13)
    assert float(by_sigma) == pytest.approx(4 * (12 * scaled**12 - 6 * scaled**6), rel=1e-13)
