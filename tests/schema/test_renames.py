"""Names of earlier versions: told with the present ones, and read where an earlier run goes on."""

import pytest
from configurations import refusal

from simjax.config import load_config
from simjax.config.folders import resume_differences
from simjax.schema.renames import KEYS, MODELS, with_new_names

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


def particles(of, **changes):
    config = {"landau": "landau_damping", "gravity": "zeldovich"}[of]
    return {**load_config(config).write(), **changes}


def test_an_earlier_key_is_told_with_the_present_one():
    plasma, gravity = particles("landau"), particles("gravity")
    for path, now in KEYS.items():
        if not path.startswith("physics."):
            continue
        base = plasma if path == "physics.field_cells" else gravity
        said = refusal({**base, "physics": {**base["physics"], path.removeprefix("physics."): 1}})
        assert f"{path}: unknown key; it is {now} now, write that" in said
    assert "arrangement: unknown key; it is neighbor_list now" in refusal({**plasma, "arrangement": {"skin": 1.0}})


@pytest.mark.parametrize("model", MODELS)
def test_an_earlier_model_is_told_with_the_present_name(model):
    said = refusal(particles("landau", model=model))
    assert f"model = {model!r}: it is {MODELS[model]} now, write model={MODELS[model]}" in said
