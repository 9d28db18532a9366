"""Names of earlier versions: told with the present ones, and read where an earlier run goes on."""

import pytest
from configurations import refusal

from simjax.config import load_config
from simjax.config.folders import resume_differences
from simjax.schema.renames import KEYS, MODELS, numbers_with_new_names, with_new_names

EARLIER = {
    "model": "electromagnetic_plasma",
    "title": "A plasma whose matter_share is one",
    "arrangement": {"skin": None, "steps": 1, "capacity": 64, "rows": None},
    "physics": {"field_cells": [8, 8], "matter_share": 0.3, "first_scale_factor": 0.1},
    "initial": {"displacement": ["matter_share * sin(x)", "first_scale_factor"]},
    "ensemble": {"size": 2, "vary": {"physics.matter_share": {"uniform": [0.2, 0.4]}}},
    "time": {"end": 1.0, "integrator": "direct"},
}
NOW = {
    "model": "electromagnetic_pic",
    "title": "A plasma whose matter_share is one",
    "neighbor_list": {"skin": None, "rebuild_every": 1, "cell_capacity": 64, "max_neighbors": None},
    "physics": {"mesh_cells": [8, 8], "omega_matter": 0.3, "initial_scale_factor": 0.1},
    "initial": {"displacement": ["omega_matter * sin(x)", "initial_scale_factor"]},
    "ensemble": {"size": 2, "vary": {"physics.omega_matter": {"uniform": [0.2, 0.4]}}},
    "time": {"end": 1.0, "integrator": None},
}


def test_an_earlier_configuration_is_read_with_the_present_names():
    assert with_new_names(EARLIER) == NOW and with_new_names(NOW) == NOW
    assert resume_differences(EARLIER, NOW) == ([], [])
    refused, _ = resume_differences(EARLIER, {**NOW, "physics": {**NOW["physics"], "omega_matter": 0.4}})
    assert refused == ["physics.omega_matter was 0.3 and is 0.4 now"]


FLAT = {
    "model": "molecular_dynamics",
    "title": "A bond in a bath",
    "physics": {
        "potential": "yukawa", "strength": 2.0, "screening": 1.0, "epsilon": 1.0, "sigma": 1.0, "mode": "truncated",
        "dynamics": "langevin", "bath_temperature": 0.5, "friction": 2.0, "period": 0.5, "bond": "harmonic",
        "bond_stiffness": 30.0, "bond_rest_length": 1.0, "angle": "none", "angle_stiffness": 1.0, "charge": [1.0],
        "coulomb_constant": 2.0, "background": True,
    },
    "ensemble": {"size": 2, "vary": {"physics.strength": {"uniform": [1.0, 2.0]}}},
    "inverse": {"unknowns": {"physics.bond_stiffness": {"guess": "30 * friction"}}},
}  # fmt: skip
NESTED = {
    "model": "molecular_dynamics",
    "title": "A bond in a bath",
    "physics": {
        "potential": {"yukawa": {"strength": 2.0, "screening": 1.0}},
        "thermostat": {"langevin": {"temperature": 0.5, "friction": 2.0}},
        "bond": {"harmonic": {"stiffness": 30.0, "rest_length": 1.0}},
        "angle": None,
        "charges": {"species": [1.0], "constant": 2.0, "background": True},
        "mode": "truncated",
    },
    "ensemble": {"size": 2, "vary": {"physics.potential.yukawa.strength": {"uniform": [1.0, 2.0]}}},
    "inverse": {"unknowns": {"physics.bond.harmonic.stiffness": {"guess": "30 * thermostat_friction"}}},
}


def test_keys_of_an_earlier_version_go_below_their_parts():
    assert with_new_names(FLAT) == NESTED and with_new_names(NESTED) == NESTED
    before = {"strength": 2.0, "friction": 2.0, "epsilon": 1.0, "coulomb_constant": 2.0, "start_temperature": 0.0}
    now = {"potential_strength": 2.0, "thermostat_friction": 2.0, "charges_constant": 2.0, "start_temperature": 0.0}
    assert numbers_with_new_names(before, FLAT) == now and numbers_with_new_names(now, NESTED) == now


def particles(of, **changes):
    config = {"landau": "landau_damping", "gravity": "zeldovich", "molecules": "lennard_jones"}[of]
    return {**load_config(config).write(), **changes}


def test_an_earlier_key_is_told_with_the_present_one():
    plasma, gravity, molecules = (particles(name) for name in ("landau", "gravity", "molecules"))
    for path, now in KEYS.items():
        if not path.startswith("physics."):
            continue
        base = plasma if path == "physics.field_cells" else gravity
        if now.split(".")[1] in molecules["physics"]:
            base = molecules
        said = refusal({**base, "physics": {**base["physics"], path.removeprefix("physics."): 1}})
        assert f"{path}: unknown key; it is {now} now, write that" in said
    assert "arrangement: unknown key; it is neighbor_list now" in refusal({**plasma, "arrangement": {"skin": 1.0}})


@pytest.mark.parametrize("model", MODELS)
def test_an_earlier_model_is_told_with_the_present_name(model):
    said = refusal(particles("landau", model=model))
    assert f"model = {model!r}: it is {MODELS[model]} now, write model={MODELS[model]}" in said
