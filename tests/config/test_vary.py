"""Values that differ between members of an ensemble: reproducible one by one, and distributed as asked."""

import numpy as np
from configurations import FLOW, changed

from simjax.config import validate
from simjax.schema.ensemble import sample_members

VARIED = changed(
    FLOW,
    {
        "parameters": {"a": 1.0, "b": 2.0},
        "ensemble.size": 64,
        "ensemble.vary": {
            "physics": {"viscosity": {"log_uniform": [1e-4, 1e-2]}},
            "parameters": {"a": {"uniform": [-1, 3]}, "b": {"linspace": [0, 63]}},
        },
    },
)


def test_a_member_is_the_same_whatever_the_size():
    few = sample_members(validate(VARIED))
    many = sample_members(validate(changed(VARIED, {"ensemble.size": 1024})))
    alone = sample_members(
        validate(
            changed(FLOW, {"ensemble": {"size": 18, "vary": {"physics.viscosity": {"log_uniform": [1e-4, 1e-2]}}}})
        )
    )
    for path in ("physics.viscosity", "parameters.a"):
        assert np.array_equal(few[path], many[path][:64])
    assert alone["physics.viscosity"][17] == many["physics.viscosity"][17]
    assert np.array_equal(few["parameters.b"], np.arange(64.0))


def test_samples_have_the_distribution_asked_for():
    samples = sample_members(validate(changed(VARIED, {"ensemble.size": 1024})))
    log = np.log10(samples["physics.viscosity"])
    assert log.min() >= -4 and log.max() <= -2
    # the mean of 1024 uniform numbers over a width w scatters by w / sqrt(12 * 1024) = 0.009 w: five of those
    assert abs(log.mean() + 3.0) < 0.045 * 2 and abs(samples["parameters.a"].mean() - 1.0) < 0.045 * 4
    # independent parameters: the correlation of 1024 pairs scatters by 1/32
    assert abs(np.corrcoef(log, samples["parameters.a"])[0, 1]) < 5 / 32


def test_another_seed_is_another_sample():
    one, other = (sample_members(validate({**VARIED, "seed": seed})) for seed in (0, 1))
    assert not np.any(one["parameters.a"] == other["parameters.a"])
