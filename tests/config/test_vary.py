"""Values that differ between members of an ensemble: reproducible one by one, and distributed as asked."""

import numpy as np
import pytest
from configurations import FLOW, changed

from simjax.config import validate
from simjax.errors import ConfigurationError
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


def varied(design="random", size=64, **vary):
    return changed(
        FLOW, {"parameters": {"a": 1.0, "b": 2.0}, "ensemble": {"size": size, "design": design, "vary": vary}}
    )


NUMBERS = {"physics.viscosity": {"log_uniform": [1e-4, 1e-2]}, "parameters.a": {"uniform": [-1, 3]}}


def shares(samples):
    """Where each member lies between the ends of each number, from 0 to 1."""
    return np.log10(samples["physics.viscosity"]) / 2 + 2, (samples["parameters.a"] + 1) / 4


def test_normal_numbers_have_their_mean_and_deviation():
    samples = sample_members(validate(varied(size=4096, **{"parameters.a": {"normal": [2.0, 0.5]}})))["parameters.a"]
    # The mean scatters by 0.5 / 64, the deviation by 0.5 / sqrt(2 * 4096): five of those.
    assert abs(samples.mean() - 2.0) < 0.04 and abs(samples.std() - 0.5) < 0.03
    # Below one deviation lie 15.87 % of a normal distribution; 4096 counts scatter by 0.57 %.
    assert abs(np.mean(samples < 1.5) - 0.1587) < 0.03


def test_a_member_of_a_sobol_sequence_is_the_same_whatever_the_size():
    few, many = (sample_members(validate(varied("sobol", size, **NUMBERS))) for size in (37, 1024))
    for path in NUMBERS:
        assert np.array_equal(few[path], many[path][:37])


def test_sobol_and_latin_hypercube_have_a_member_in_each_share():
    for design, size in (("sobol", 64), ("latin_hypercube", 50)):
        samples = sample_members(validate(varied(design, size, **NUMBERS)))
        for share in shares(samples):
            assert sorted(np.floor(share * size).astype(int)) == list(range(size)), design
    # The first 64 points of a Sobol sequence have one in each of the 8 x 8 squares, too.
    first, second = shares(sample_members(validate(varied("sobol", 64, **NUMBERS))))
    squares = np.floor(8 * first).astype(int) * 8 + np.floor(8 * second).astype(int)
    assert sorted(squares) == list(range(64))


def test_a_design_is_one_of_the_seed():
    for design in ("sobol", "latin_hypercube"):
        one, other = (sample_members(validate({**varied(design, **NUMBERS), "seed": seed})) for seed in (0, 1))
        assert not np.any(one["parameters.a"] == other["parameters.a"])


@pytest.mark.parametrize(
    ("vary", "told"),
    [
        (
            {"physics.viscosity": {"normal": [1e-3, 1e-3]}},
            r"\d+ of 64 are not: member \d+ draws -.*; write a smaller deviation, or log_uniform",
        ),
        ({"parameters.a": {"normal": [1.0, 0.0]}}, "a standard deviation > 0"),
        ({"parameters.a": {"normal": [1.0]}}, "numbers, mean and standard deviation"),
        ({"parameters.a": {"gauss": [1.0, 2.0]}}, "expected one of uniform, log_uniform, normal, linspace, values"),
    ],
)
def test_what_cannot_be_drawn_is_refused(vary, told):
    with pytest.raises(ConfigurationError, match=told):
        validate(varied(**vary))


# ---------------------------------------------------------------------- tables of members


def table(tmp_path, text, **ensemble):
    (tmp_path / "members.csv").write_text(text)
    mapping = changed(FLOW, {"parameters": {"a": 1.0, "b": 2.0}, "ensemble": {"members": "members.csv", **ensemble}})
    return validate(mapping, folders=(tmp_path,))


def test_members_come_from_a_table(tmp_path):
    text = "# from an experiment\nphysics.viscosity, parameters.a\n1e-3, 0.5\n\n2e-3, -1\n4e-3, 7\n"
    config = table(tmp_path, text, vary={"parameters.b": {"linspace": [0, 2]}})
    samples = sample_members(config)
    assert config.ensemble.size == 3
    assert samples["physics.viscosity"].tolist() == [1e-3, 2e-3, 4e-3]
    assert samples["parameters.a"].tolist() == [0.5, -1.0, 7.0] and samples["parameters.b"].tolist() == [0.0, 1.0, 2.0]
    # What a run keeps needs no table: it goes on where that has been changed or lost.
    assert validate(config.write()) == config


@pytest.mark.parametrize(
    ("text", "ensemble", "told"),
    [
        ("", {}, "has no members; write a line of names such as physics.viscosity"),
        ("parameters.a\n", {}, "has no members"),
        ("parameters.c\n1\n", {}, r"parameters.c: unknown key; did you mean .*parameters.[ab]"),
        ("parameters.a,parameters.a\n1,2\n", {}, "several columns parameters.a"),
        ("parameters.a,parameters.b\n1,2\n3\n", {}, r"line 3 of members.csv has 1 cell\(s\), expected 2"),
        ("parameters.a\n1\nx\n", {}, r"line 3 of members.csv, parameters.a = 'x'"),
        ("physics.viscosity\n0.1\n-1\n", {}, r"line 3 of members.csv, physics.viscosity = -1"),
        ("parameters.a\n1\n2\n", {"size": 3}, "expected 2, the members of members.csv; leave it out"),
        ("parameters.a\n1\n2\n", {"vary": {"parameters.a": {"linspace": [0, 1]}}}, "has a column of it"),
    ],
)
def test_mistakes_in_a_table_are_told(tmp_path, text, ensemble, told):
    with pytest.raises(ConfigurationError, match=told):
        table(tmp_path, text, **ensemble)


def test_a_table_that_is_missing_is_told(tmp_path):
    mapping = changed(FLOW, {"ensemble": {"members": "nowhere.csv"}})
    with pytest.raises(ConfigurationError, match="ensemble.members = 'nowhere.csv': no such file"):
        validate(mapping, folders=(tmp_path,))
