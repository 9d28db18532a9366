"""mesh=auto: the mesh chosen by what a traced step sends."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from jax.sharding import PartitionSpec

import simjax as sj
from simjax.core.boundary import Periodic, center_layout
from simjax.driver.start.mesh_choice import choose_mesh
from simjax.grid import Grid
from simjax.jaxpr.sent_bytes import sent_bytes
from simjax.parallel import decompose, distribute, make_mesh
from simjax.schema.config import AutoMesh


def sent(fn, domain, mesh, *, out=None):
    """Bytes and messages of a function of one field, float64."""
    program = distribute(fn, mesh, in_specs=domain.spec(), out_specs=domain.spec() if out is None else out)
    return sent_bytes(program.trace(jnp.ones(domain.grid.shape)).jaxpr.jaxpr, dict(mesh.shape))


def test_bytes_of_an_exchange_are_its_faces():
    mesh = make_mesh({"x": 2, "y": 4})
    domain = decompose(Grid((16, 24)), mesh)
    layout = center_layout([(Periodic(), Periodic())] * 2)
    padded = sent(lambda u: domain.pad(u, layout, 2)[2:-2, 2:-2], domain, mesh)
    # Two lines of a block of 8 x 6 each way along x, then along y with the corners.
    assert padded == (8 * 2 * (2 * 6 + 2 * (8 + 4)), 4)

    def often(u):
        return jax.lax.fori_loop(0, 5, lambda _, v: domain.pad(v, layout, 2)[2:-2, 2:-2], u)

    assert sent(often, domain, mesh) == (5 * padded[0], 5 * padded[1])
    # A number of 8 bytes, summed over 8 devices: each of them sends 7/8 of it twice.
    assert sent(domain.sum, domain, mesh, out=PartitionSpec()) == (14, 1)


def test_bytes_of_a_transpose_are_a_block_but_for_the_own_part():
    mesh = make_mesh({"x": 4})
    domain = decompose(Grid((16, 24)), mesh)

    def there_and_back(u):
        moved = jax.lax.all_to_all(u, "x", 1, 0, tiled=True)
        return jax.lax.all_to_all(moved, "x", 0, 1, tiled=True)

    assert sent(there_and_back, domain, mesh) == (2 * 8 * 4 * 24 * 3 / 4, 2)


def chosen(experiment, *overrides, devices=8):
    """Sizes above one, and the sentence."""
    config = sj.load(experiment, [*overrides, "mesh=auto"]).config
    assert isinstance(config.mesh, AutoMesh) and config.write()["mesh"] == "auto"
    mesh, sentence = choose_mesh(config, devices)
    return {name: getattr(mesh, name) for name in ("ensemble", "x", "y", "z") if getattr(mesh, name) > 1}, sentence


DYE = ("dye", "exact=null")
VARIED = "ensemble.vary={physics.diffusivity: {uniform: [0.01, 0.02]}}"


@pytest.mark.parametrize("shape", [(64, 64), (16, 256)])
@pytest.mark.slow
def test_the_faces_of_a_block_are_as_small_as_can_be(shape):
    sizes, sentence = chosen(*DYE, f"grid.shape={list(shape)}")
    faces = {}
    for x in (1, 2, 4, 8):
        blocks = shape[0] // x, shape[1] // (8 // x)
        # Corners go along with the faces of y.
        faces[x] = (x > 1) * blocks[1] + (x < 8) * (blocks[0] + 2)
    assert faces[sizes.get("x", 1)] == min(faces.values()) and math.prod(sizes.values()) == 8
    assert "the least of 4 ways to cut it among 8 devices" in sentence


@pytest.mark.slow
def test_members_come_first_where_they_divide():
    many = [*DYE, "grid.shape=[16,16]", VARIED]
    assert chosen(*many, "ensemble.size=16")[0] == {"ensemble": 8}
    sizes, sentence = chosen(*many, "ensemble.size=4")
    assert sizes["ensemble"] == 4 and math.prod(sizes.values()) == 8 and "each device sends" in sentence


@pytest.mark.slow
def test_a_member_without_room_on_one_device_is_cut():
    state = 64 * 64 * 4
    overrides = [*DYE, "grid.shape=[64,64]", "ensemble.size=8", VARIED, "precision=float32"]
    # 24 states of a step and 2 of each member on the device: of a quarter of the grid there is room, not of a half.
    sizes, sentence = chosen(*overrides, f"limits.memory={(24 + 2 * 4) * state / 4 * 1.2 / 2**30}")
    assert sizes["ensemble"] == 2 and math.prod(sizes.values()) == 8 and "on fewer devices lacks room" in sentence


def test_what_cannot_be_cut_stays_on_one_device_and_says_why():
    sizes, sentence = chosen("kuramoto_sivashinsky")
    assert not sizes and "A spectrum along one axis cannot be cut" in sentence
    assert chosen("kuramoto_sivashinsky", devices=1) == ({}, "mesh=auto is one device: no other is present.")


def test_as_many_devices_as_divide_the_grid():
    sizes, sentence = chosen(*DYE, "grid.shape=[9,9]")
    assert math.prod(sizes.values()) == 3 and "8 devices are present" in sentence


@pytest.mark.slow
def test_cells_of_particles_are_as_wide_as_they_reach():
    sizes, _ = chosen("lennard_jones", "particles.count=500", "box.upper=[4.2,16.8,8.4]")
    # Three cells of 2.8 at least along a cut axis; along x none.
    assert "x" not in sizes and 1 < math.prod(sizes.values()) <= 8


@pytest.mark.slow
def test_a_run_keeps_the_sizes_as_if_they_were_given(tmp_path):
    overrides = [
        "grid.shape=[16,16]",
        "time.end=0.02",
        "time.output_every=0.02",
        "exact=null",
        "output.report=false",
        "output.animation=false",
        f"output.root={tmp_path}",
    ]
    result = sj.load("dye", [*overrides, "mesh=auto"]).run()
    (part,) = json.loads((result.folder / "provenance.json").read_text())["parts"]
    written = yaml.safe_load((result.folder / ".hydra" / "config.yaml").read_text())["mesh"]
    assert math.prod(part["mesh"].values()) == 8 and part["mesh"].items() <= written.items()
    assert "mesh=auto is" in (result.folder / "run.log").read_text()
    alone = sj.load("dye", overrides).run()
    np.testing.assert_allclose(result.ds["concentration"], alone.ds["concentration"], rtol=0, atol=1e-13)


def test_a_wrong_word_is_answered_with_the_right_one():
    with pytest.raises(sj.ConfigurationError, match="mesh = 'atuo'.*did you mean 'auto'"):
        sj.load("dye", ["mesh=atuo"])


def test_neighbours_along_the_last_key_are_on_devices_that_follow_each_other():
    mesh = make_mesh({"y": 4, "x": 2})
    assert mesh.axis_names == ("y", "x")
    assert [[d.id for d in row] for row in mesh.devices] == [[0, 1], [2, 3], [4, 5], [6, 7]]
