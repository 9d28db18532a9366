"""Modules outside `models` do not name a field or a number of a model: what is special about it, the model declares."""

import ast

from paths import ROOT

from simjax.models.registry import MODELS

PACKAGE = ROOT / "simjax"
HOMONYMS = {
    "particles": "a section of the configuration, and a count",
    "potential": "part of a pair force",
    "scale": "a factor",
    "scale_factor": "an attribute of CF",
    "source": "an attribute of CF, and a mark",
    "scalars": "a group of a file",
    "speed": "what a run, or a particle, has; a colour map",
    "u": "a letter: a value, a unit, unsigned numbers",
    "v": "a letter: a marker, a value",
    "volume": "the size of a cell",
}
"""Names that are words or letters with other meanings too, and with which."""
OF_PARTICLES = {"position", "velocity", "image", "mass", "charge"}
"""What every particle has, whatever moves it: the interface of particles to files, instruments and pictures."""
ALLOWED = {
    "certificate/particle_run.py": (OF_PARTICLES, "moves particles at the start"),
    "certificate/moved_shapes.py": ({"solid", "solid_velocity"}, "moves bodies along with their velocity"),
    "config/observations.py": (OF_PARTICLES, "observes particles"),
    "core/boundary.py": ({"velocity", "temperature"}, "keys of sides, named by what a side prescribes"),
    "driver/programs/programs_of_instruments.py": (OF_PARTICLES, "where particles started"),
    "driver/programs/programs_of_particles.py": (OF_PARTICLES, "particles"),
    "driver/programs/programs_of_statistics.py": (OF_PARTICLES, "statistics of particles"),
    "instruments/body_surface.py": ({"position"}, "points on a surface"),
    "instruments/everything.py": (OF_PARTICLES, "all particles"),
    "instruments/force_coefficients.py": ({"density"}, "a key: that of the stream"),
    "instruments/receivers.py": ({"receiver"}, "a kind of mark, as `Model.marks` names them"),
    "instruments/particles_on_mesh.py": (OF_PARTICLES | {"density", "temperature"}, "particles on a mesh"),
    "instruments/tracks.py": (OF_PARTICLES, "particles by their numbers"),
    "io/": (OF_PARTICLES, "files of particles"),
    "io/pdebench.py": ({"density", "pressure", "velocity_x", "velocity_y", "velocity_z"}, "names of that format"),
    "particles/diffusion.py": ({"temperature"}, "variance of velocities"),
    "particles/neighbor_policy.py": (OF_PARTICLES, "particles"),
    "report/animation.py": (OF_PARTICLES, "particles"),
    "report/geometry.py": ({"receiver"}, "a kind of mark, as `Model.marks` names them"),
    "report/pair_distribution.py": (OF_PARTICLES, "particles"),
    "report/particle_painter.py": (OF_PARTICLES, "particles"),
    "report/particle_summary.py": (
        OF_PARTICLES | {"energy", "kinetic_energy", "potential_energy", "temperature"},
        "the row of a thermal motion, beside Maxwell's distribution: energies per particle and its temperature",
    ),
    "schema/instrument_declarations.py": ({"density"}, "an instrument: densities of particles on a mesh"),
    "schema/model_schema.py": ({"velocity"}, "the one vector whose magnitude has a word of its own: speed"),
    "schema/particles.py": ({"density"}, "a key of the section particles"),
}
"""What a module, or all of a folder, may name, and why."""


def names_of_models():
    """Fields, coefficients, variables and balanced quantities that models declare, and numbers that they measure."""
    found = set()
    for schema in MODELS.values():
        fields = {field.name for field in (*schema.fields, *schema.coefficients)}
        for ndim in range(schema.least_axes, schema.most_axes + 1):
            found |= fields | {*schema.variables(ndim)} | {*schema.balanced(ndim, {})}
    for path in (PACKAGE / "models").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
                measured = isinstance(value, ast.Call) and getattr(value.func, "id", "") == "Measure"
                found |= {key.value} if measured and isinstance(key, ast.Constant) else set()
    return found - {*HOMONYMS}


def strings(source):
    """Strings of a module that are no docstrings, as names: the beginning `vorticity_` is `vorticity`."""
    tree = ast.parse(source)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in texts]
    return {node.value.rstrip("_") for node in constants if isinstance(node.value, str)}


def allowed(module):
    return set().union(*(names for place, (names, _) in ALLOWED.items() if module.startswith(place)))


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        if not module.startswith("models/"):
            yield module, strings(path.read_text(encoding="utf-8"))


def test_what_is_looked_for_is_what_models_declare():
    names = names_of_models()
    assert names >= {"vorticity", "temperature", "velocity_x", "kinetic_energy", "enstrophy", "max_divergence", "solid"}
    assert strings('"""velocity"""\nif name.startswith("momentum_"):\n    "energy"\n') == {"momentum"}


def test_no_module_outside_models_names_a_field_or_a_number_of_a_model():
    names = names_of_models()
    found = {module: sorted((texts & names) - allowed(module)) for module, texts in modules()}
    assert {module: named for module, named in found.items() if named} == {}


def test_nothing_is_allowed_that_no_module_names():
    known = dict(modules())
    for place, (names, _) in ALLOWED.items():
        used = set().union(*(texts for module, texts in known.items() if module.startswith(place)))
        unused = names - used if names & OF_PARTICLES != OF_PARTICLES else (names - OF_PARTICLES) - used
        assert used & names and not unused, (place, unused)
