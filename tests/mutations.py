"""Deliberate faults, one at a time, and the test that must notice each.

Thresholds, signs and index offsets of core, particles, kernels, adjoints, integrators and solvers. Run all of them, or
those whose name contains a word, from the root of a checkout:

    python tests/mutations.py [WORD]

Each fault is put into a copy of the package, and its test runs there in a process of its own. The exit code is the
number of faults that no test noticed. To add one: a line of `MUTATIONS` with a piece of text that occurs once in its
file.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutation:
    """A fault: `text` of a file of the package replaced by `fault`; `test`, a node of pytest, must fail then."""

    name: str
    path: str
    text: str
    fault: str
    test: str

    def survives(self) -> str:
        """Why the fault was not noticed; empty if it was."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder)
            shutil.copytree(ROOT / "simjax", copy / "simjax", ignore=shutil.ignore_patterns("__pycache__"))
            for name in ("tests", "conf", "experiments", "docs", "pyproject.toml"):
                (copy / name).symlink_to(ROOT / name)
            target = copy / "simjax" / self.path
            target.write_text(self.mutated(target.read_text()))
            command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "", "-x", "-p", "no:cacheprovider", self.test]
            environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
            ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=600)
        # The summary, not the exit code: threads of a library may die with the process after a test has failed. Without
        # a test that failed there is no verdict: no such test, or an error in starting.
        failed = re.match(r"\d+ failed", ended.stdout.rstrip().rpartition("\n")[2])
        return "" if failed else f"pytest ended with {ended.returncode}:\n{ended.stdout[-2000:]}"

    def mutated(self, source: str) -> str:
        """The file's text with the fault.

        Raises:
            ValueError: the text to be replaced is not there exactly once.
        """
        if source.count(self.text) != 1:
            raise ValueError(f"{self.name}: {self.text!r} is {source.count(self.text)} times in {self.path}, not once.")
        return source.replace(self.text, self.fault)


MUTATIONS = [
    Mutation(
        "an old spelling outlives the version that drops it",
        "deprecation.py",
        "<= _numbers(version)",
        "< _numbers(version)",
        "tests/config/test_deprecation.py::test_versions_are_compared_as_numbers",
    ),
    Mutation(
        "the next schema is read as the present one",
        "schema/schema_number.py",
        "number > SCHEMA:",
        "number > SCHEMA + 1:",
        "tests/config/test_deprecation.py::test_a_newer_schema_is_refused_with_one_sentence",
    ),
    Mutation(
        "defaults are lost beside an old key's section",
        "deprecation.py",
        "value = {**below, **{key:",
        "value = {**{key:",
        "tests/config/test_deprecation.py::test_an_old_key_of_an_experiment_takes_the_place_of_the_default",
    ),
    # costs of programs
    Mutation(
        "a scalar exchanges its rim twice",
        "models/scalar/advection_diffusion.py",
        "return State(self.domain.apply(tendency, state.concentration, self.layout, width=1, t=t))",
        "c = state.concentration; a, b = (self.domain.apply(tendency, u, self.layout, width=1) for u in (c, 2 * c))"
        "; return State(0.5 * a + 0.25 * b)",
        "tests/inspect/test_program_costs.py::test_a_step_of_a_scalar_costs_what_it_did",
    ),
    # gradients on a GPU
    Mutation(
        "all steps are stored in more than half of a device",
        "stepping/checkpointing/plan.py",
        "AUTO_SHARE = 0.5",
        "AUTO_SHARE = 0.50001",
        "tests/stepping/test_checkpoint_plans.py::test_auto_stores_all_steps_where_the_device_has_room",
    ),
    Mutation(
        "each member has all of a device",
        "stepping/simulate.py",
        "memory //= members_of((params, *carry))",
        "pass",
        "tests/stepping/test_checkpoint_plans.py::test_auto_asks_the_device_for_its_memory_and_counts_members",
    ),
    Mutation(
        "a GPU gathers in reverse as a CPU does",
        "stencil/formulation.py",
        'return platform() in ("cpu", "tpu")',
        "return True",
        "tests/stencil/test_formulation.py::test_a_flow_has_the_same_gradient_by_gathers_and_as_it_stands",
    ),
    Mutation(
        "the last lines' cotangents are added to the first",
        "stencil/padding.py",
        "(beyond, 0, 0) if last else (0, beyond, 0)",
        "(0, beyond, 0)",
        "tests/stencil/test_formulation.py::test_a_flow_has_the_same_gradient_by_gathers_and_as_it_stands",
    ),
    Mutation(
        "large arrays of nothing are not tied to a loop",
        "jaxpr/invariants.py",
        "tied.add(path)",
        "pass",
        "tests/jaxpr/test_invariants.py::test_large_arrays_of_nothing_stay_in_a_loop_that_is_differentiated",
    ),
    # statistics in time and conditions
    Mutation(
        "the last state's step is not the weight of the next",
        "stepping/watching.py",
        "t, sums.waiting, gathering.read(t",
        "t, jnp.ones_like(sums.waiting), gathering.read(t",
        "tests/driver/test_time_statistics.py::test_statistics_are_those_of_the_states_after_every_step",
    ),
    Mutation(
        "states count from a step too early",
        "stepping/watching.py",
        "start.elapsed - EARLY *",
        "start.elapsed - 1.5 *",
        "tests/driver/test_time_statistics.py::test_statistics_are_those_of_the_states_after_every_step",
    ),
    Mutation(
        "a third moment moves with the mean the other way",
        "stepping/moments.py",
        "skew + 3 * shift",
        "skew - 3 * shift",
        "tests/driver/test_time_statistics.py::test_statistics_are_those_of_the_states_after_every_step",
    ),
    Mutation(
        "a sum of float32 drops its rounding error",
        "stepping/moments.py",
        "Total(*added((self.value, self.low), x))",
        "Total(self.value + x, self.low)",
        "tests/driver/test_time_statistics.py::test_a_long_sum_of_float32_keeps_its_digits",
    ),
    Mutation(
        "an event occurs as long as its condition holds",
        "stepping/watching.py",
        " | ~before)",
        " | True)",
        "tests/driver/test_triggers.py::test_a_run_that_has_ended_goes_on_with_another_condition_only",
    ),
    Mutation(
        "an event occurs at every frame at which its condition holds",
        "driver/loop/judged_triggers.py",
        "self._held.get(name, before)",
        "before",
        "tests/driver/test_triggers.py::test_a_run_ends_where_its_condition_holds",
    ),
    Mutation(
        "a damaged program is taken from the cache",
        "driver/programs/compile_cache.py",
        "told == _checksum(key, program)",
        "told",
        "tests/driver/test_compile_cache.py::test_what_is_damaged_is_compiled_again_and_replaced",
    ),
    Mutation(
        "programs make room although there is enough",
        "driver/programs/compile_cache.py",
        "total <= self.largest",
        "total <= 0",
        "tests/driver/test_compile_cache.py::test_the_programs_unused_for_longest_make_room",
    ),
    Mutation(
        "a program is taken for another",
        "driver/programs/compile_cache.py",
        "zlib.crc32(program, zlib.crc32(key.encode()))",
        "zlib.crc32(program)",
        "tests/driver/test_compile_cache.py::test_a_program_in_the_place_of_another_is_not_taken",
    ),
    Mutation(
        "files of others are dropped from the cache",
        "driver/programs/compile_cache.py",
        "file.suffix not in (SUFFIX, PART_SUFFIX)",
        "False",
        "tests/driver/test_compile_cache.py::test_the_programs_unused_for_longest_make_room",
    ),
    Mutation(
        "a folder of other files becomes the cache",
        "driver/programs/compile_cache.py",
        "if any(not _looks_own(entry)",
        "if False and any(not _looks_own(entry)",
        "tests/driver/test_compile_cache.py::test_a_folder_of_other_files_is_left_alone",
    ),
    Mutation(
        "fields of others are overwritten",
        "io/replacing.py",
        'if not any(name.startswith("simjax_") for name in _attributes(path)):',
        "if False:",
        "tests/io/test_replacing.py::test_no_run_replaces_what_others_wrote",
    ),
    Mutation(
        "a run replaces a training",
        "io/replacing.py",
        'if not isinstance(_manifest_meta(path).get("run"), dict):',
        "if False:",
        "tests/io/test_replacing.py::test_no_run_replaces_what_others_wrote",
    ),
    Mutation(
        "another program's folder becomes a run's",
        "io/replacing.py",
        "elif not provenance.exists():",
        "elif False:",
        "tests/io/test_replacing.py::test_names_of_a_run_alone_do_not_make_one",
    ),
    Mutation(
        "a run replaces what it reads",
        "io/replacing.py",
        'if lost is not None:\n            raise ConfigurationError(\n                f"{door}: {lost} is read',
        'if False:\n            raise ConfigurationError(\n                f"{door}: {lost} is read',
        "tests/io/test_replacing.py::test_a_run_does_not_replace_what_it_reads",
    ),
    Mutation(
        "files of others vanish from a store",
        "io/folder_copy.py",
        "if name not in self._sent and not is_name_of_run(name):",
        "if False:",
        "tests/io/test_replacing.py::test_a_copy_replaces_a_run_and_nothing_of_others",
    ),
    Mutation(
        "a port is taken for a password",
        "errors.py",
        r"(?!\d+(?:[/\s]|$))",
        "",
        "tests/driver/test_object_stores.py::test_names_passwords_and_queries_are_not_shown",
    ),
    Mutation(
        "names of files may be longer than any system has them",
        "schema/locate.py",
        "LONGEST_NAME, LONGEST_PATH = 255, 4095",
        "LONGEST_NAME, LONGEST_PATH = 256, 4095",
        "tests/config/test_paths.py::test_what_a_system_can_have",
    ),
    Mutation(
        "time counts from the shell",
        "driver/start/environment.py",
        "return max(made, began)",
        "return made",
        "tests/driver/test_environment.py::test_time_counts_from_the_interpreter_and_not_from_the_shell_that_becomes_it",
    ),
    Mutation(
        "a job goes on past its end",
        "driver/loop/time_limits.py",
        "wall.time() + needed >= seconds_since_1970(limits.until)",
        "False",
        "tests/driver/test_simulation.py::test_a_job_that_ends_at_a_moment_stops_before",
    ),
    Mutation(
        "a resume stops where it began for ever",
        "driver/loop/single_run.py",
        "if reason and not self.stepped and not self.of_group",
        "if False and not self.of_group",
        "tests/driver/test_simulation.py::test_wall_clock_limit_stops_resumably",
    ),
    Mutation(
        "a hangup that nohup ignores stops a run",
        "driver/start/environment.py",
        "signal.getsignal(number) is signal.SIG_IGN",
        "False",
        "tests/driver/test_environment.py::test_a_hangup_that_is_ignored_stays_so",
    ),
    Mutation(
        "arguments without effect are listed",
        "export/functions.py",
        "used_names(jax.jit(self.function), self.shapes()) | self.kept",
        "{*self.arguments}",
        "tests/export/test_export.py::test_what_does_nothing_is_no_argument_and_what_is_not_allowed_gives_no_numbers",
    ),
    Mutation(
        "an exported program takes a negative diffusivity",
        "export/functions.py",
        "(value >= kind.low)",
        "(value >= -jnp.inf)",
        "tests/export/test_export.py::test_what_does_nothing_is_no_argument_and_what_is_not_allowed_gives_no_numbers",
    ),
    Mutation(
        "a server takes a negative diffusivity",
        "serve/service.py",
        "not kind.contains(float(found))",
        "False",
        "tests/serve/test_serving.py::test_a_request_that_cannot_be_answered_gets_a_sentence",
    ),
    Mutation(
        "half a request holds a connection",
        "serve/connections.py",
        "2 * seconds + 1.0 if answering else seconds, self.give_up",
        "1e6, self.give_up",
        "tests/serve/test_serving.py::test_a_request_that_does_not_come_holds_no_connection",
    ),
    Mutation(
        "those that came last give way",
        "serve/connections.py",
        "next(iter(self._unanswered))",
        "next(reversed(self._unanswered))",
        "tests/serve/test_serving.py::test_those_that_send_for_longest_give_way",
    ),
    Mutation(
        "slow bodies take places",
        "serve/web_application.py",
        "self._require_room()  # those",
        "self._present += 1  # those",
        "tests/serve/test_serving.py::test_slow_bodies_take_no_place_of_others",
    ),
    Mutation(
        "a server answers to any name",
        "serve/web_application.py",
        "if strange is None:",
        "if True:",
        "tests/serve/test_serving.py::test_names_of_other_machines_are_not_answered",
    ),
    Mutation(
        "a run is steady after half the time",
        "driver/loop/judged_triggers.py",
        "time - over *",
        "time - 0.5 * over *",
        "tests/driver/test_triggers.py::test_a_run_ends_when_it_is_steady",
    ),
    # core
    Mutation(
        "a wall's ghosts mirror the wall face itself",
        "core/boundary.py",
        "return 2 * value - lines(edge, array_axis, 1, width)",
        "return 2 * value - lines(edge, array_axis, 0, width)",
        "tests/core/test_domain.py::test_wall_ghosts_by_hand",
    ),
    Mutation(
        "a slope at a wall has the other sign",
        "core/boundary.py",
        "+ (2 * index + 1) * rise",
        "- (2 * index + 1) * rise",
        "tests/core/test_domain.py::test_wall_ghosts_by_hand",
    ),
    Mutation(
        "neighbours are exchanged the wrong way round",
        "core/neighbors.py",
        "downwards = [(upper, lower) for lower, upper in upwards]",
        "downwards = list(upwards)",
        "tests/core/test_domain.py::test_every_ghost_of_a_periodic_field_is_the_cell_it_stands_for",
    ),
    Mutation(
        "the upper wall is taken for that of another block",
        "core/domain.py",
        "outermost = 0 if side == LOWER else _count(self.split[axis]) - 1",
        "outermost = 0 if side == LOWER else _count(self.split[axis]) - 2",
        "tests/core/test_domain.py::test_wall_ghosts_continue_the_polynomials_they_are_exact_for",
    ),
    Mutation(
        "walls are imposed one face inwards",
        "core/domain.py",
        ".reshape(shape) == 0",
        ".reshape(shape) == 1",
        "tests/core/test_domain.py::test_impose_sets_the_lower_wall_face_and_nothing_else",
    ),
    Mutation(
        "corners are cut from the wrong lines",
        "stencil/padding.py",
        "edge = jnp.concatenate([lower, edge, upper], axis=k - ndim)",
        "edge = jnp.concatenate([upper, edge, lower], axis=k - ndim)",
        "tests/core/test_domain.py::test_every_ghost_of_a_periodic_field_is_the_cell_it_stands_for",
    ),
    Mutation(
        "the rim begins a line late",
        "stencil/interior_and_rim.py",
        "first = 0 if side == LOWER else n - 2 * width",
        "first = 0 if side == LOWER else n - 2 * width - 1",
        "tests/core/test_domain.py::test_apply_is_the_stencil_of_the_padded_block_with_and_without_overlap",
    ),
    Mutation(
        "boxes begin where blocks do",
        "stencil/boxes.py",
        "[width - lower for lower, _ in reach]",
        "[0 for lower, _ in reach]",
        "tests/stencil/test_boxes.py::test_stencils_of_boxes_are_those_of_padded_blocks",
    ),
    Mutation(
        "of several lines that are read the farthest is not sent",
        "core/neighbors.py",
        "at = width - count if side == LOWER else count",
        "at = width - count + 1 if side == LOWER else count",
        "tests/stencil/test_boxes.py::test_neighbours_send_only_what_is_read",
    ),
    Mutation(
        "transposed reads are displaced the other way",
        "stencil/adjoint.py",
        "[low for low, _, _ in config[part.leading :]]",
        "[-low for low, _, _ in config[part.leading :]]",
        "tests/stencil/test_adjoint.py::test_differences_that_are_padded_again_are_transposed_as_a_stencil",
    ),
    Mutation(
        "what a face gives is added to the cells in reverse order",
        "stencil/kernels/operands.py",
        "around[axis] = (k, longest - k, 0)",
        "around[axis] = (longest - k, k, 0)",
        "tests/stencil/test_face_windows.py::test_derivatives_are_those_of_the_function",
    ),
    # particles
    Mutation(
        "a list is trusted for a whole skin",
        "particles/neighbor_policy.py",
        "return 2 * jnp.sqrt(longest) / self.skin",
        "return jnp.sqrt(longest) / self.skin",
        "tests/particles/test_cells_and_pairs.py::test_lists_serve_until_a_particle_has_moved_by_half_a_skin",
    ),
    Mutation(
        "pairs are listed within the cutoff alone",
        "particles/neighbor_policy.py",
        "neighbours_within(cells, where, ids, self.reach,",
        "neighbours_within(cells, where, ids, self.cutoff,",
        "tests/particles/test_cells_and_pairs.py::test_lists_serve_until_a_particle_has_moved_by_half_a_skin",
    ),
    Mutation(
        "a list holds one neighbour less than it says",
        "particles/neighbor_list.py",
        "cells.domain.max(longest) > max_neighbors",
        "cells.domain.max(longest) > max_neighbors + 1",
        "tests/particles/test_cells_and_pairs.py::test_lists_tell_what_does_not_fit",
    ),
    Mutation(
        "the last partners of a list are not looked at",
        "particles/pair_loops.py",
        "first < neighbours.longest",
        "first + 1 < neighbours.longest",
        "tests/particles/test_cells_and_pairs.py::test_lists_of_crowded_cells_hold_every_near_pair",
    ),
    Mutation(
        "the last slots of a cell are not looked at",
        "particles/neighbor_list.py",
        "jnp.maximum(theirs, mine) < fullest",
        "jnp.maximum(theirs, mine) < fullest - 1",
        "tests/particles/test_cells_and_pairs.py::test_lists_of_crowded_cells_hold_every_near_pair",
    ),
    Mutation(
        "a GPU walks through a list row by row",
        "jaxpr/platform.py",
        'looks up values.\n    """\n    return platform() == "gpu"',
        'looks up values.\n    """\n    return False',
        "tests/particles/test_one_pass.py::test_a_gpu_runs_no_loop",
    ),
    Mutation(
        "all sums of a GPU's pass share one expression",
        "particles/one_pass.py",
        "copy += 1",
        "copy += 0",
        "tests/particles/test_one_pass.py::test_each_sum_of_a_pass_has_an_expression_of_its_own",
    ),
    Mutation(
        "a copy of the slots for a sum of its own is another slot",
        "particles/one_pass.py",
        "jnp.full_like(index, 8)",
        "jnp.full_like(index, 1)",
        "tests/particles/test_one_pass.py::test_each_sum_of_a_pass_has_an_expression_of_its_own",
    ),
    Mutation(
        "bits that are not set stand for partners on a GPU",
        "particles/neighbor_search.py",
        "!= 0, row, length)",
        "!= 0, row, row)",
        "tests/particles/test_one_pass.py::test_lists_of_crowded_cells_are_those_of_the_loops",
    ),
    Mutation(
        "particles enter the cell behind them",
        "particles/migration.py",
        "zip(sides, (0, 1, -1), strict=True)",
        "zip(sides, (0, -1, 1), strict=True)",
        "tests/particles/test_cells_and_pairs.py",
    ),
    Mutation(
        "a particle leaves its cell before it is on the face",
        "particles/migration.py",
        "return (position >= half).astype(jnp.int32)",
        "return (position >= -half).astype(jnp.int32)",
        "tests/particles/test_cells_and_pairs.py::test_particles_on_faces_between_cells_are_kept",
    ),
    Mutation(
        "a full cell is noticed one particle late",
        "particles/migration.py",
        "jnp.any(count > cells.capacity)",
        "jnp.any(count > cells.capacity + 1)",
        "tests/particles/test_cells_and_pairs.py::test_migration_tells_what_goes_wrong",
    ),
    Mutation(
        "images are counted the wrong way at the upper side",
        "particles/migration.py",
        "- ((move < 0) & (index == last))",
        "+ ((move < 0) & (index == last))",
        "tests/particles/test_cells_and_pairs.py::test_migration_moves_particles_and_loses_none",
    ),
    Mutation(
        "a sum over many nodes leaves the first ones out",
        "particles/mesh_sums.py",
        "lax.fori_loop(0, first.shape[0], add",
        "lax.fori_loop(1, first.shape[0], add",
        "tests/particles/test_particle_mesh.py::test_weights_are_those_of_the_literature",
    ),
    Mutation(
        "partners pull in their own direction",
        "particles/pairs.py",
        "tuple(-x for x in apart), there, _with(here, part)",
        "tuple(x for x in apart), there, _with(here, part)",
        "tests/particles/test_cells_and_pairs.py::test_derivatives_of_pair_sums",
    ),
    # kernels
    Mutation(
        "a GPU's upper ghost line is one further",
        "stencil/kernels/gpu_ghosts.py",
        "cell = line if line < width else interior[axis] + line",
        "cell = line if line < width else interior[axis] + line + 1",
        "tests/stencil/kernels/test_gpu_ghosts.py",
    ),
    Mutation(
        "a GPU's block begins at the first ghost cell",
        "stencil/kernels/tiles.py",
        "-(extent // 2) % (16 // operand.dtype.itemsize)",
        "0",
        "tests/stencil/kernels/test_gpu_ghosts.py",
    ),
    Mutation(
        "a GPU's last ghost line is not written",
        "stencil/kernels/gpu_ghosts.py",
        "(place < np.int32(tile[axis] + 2 * width))",
        "(place < np.int32(tile[axis] + 2 * width - 1))",
        "tests/stencil/kernels/test_gpu_ghosts.py",
    ),
    Mutation(
        "a GPU's ghost rows begin at the tile",
        "stencil/kernels/gpu_ghosts.py",
        "before = 0 if k < axis else width",
        "before = 0",
        "tests/stencil/kernels/test_gpu_ghosts.py",
    ),
    Mutation(
        "a kernel reads a cell too far",
        "stencil/kernels/tracing.py",
        "offset[place] = starts[axis]",
        "offset[place] = starts[axis] + 1",
        "tests/stencil/kernels/test_kernels.py::test_slices_become_displacements_and_nothing_is_computed_twice",
    ),
    Mutation(
        "what a step keeps is read a cell away",
        "stencil/kernels/fused_stencils.py",
        "tuple(o + m for o, m in zip(point.offset, margin, strict=True))",
        "tuple(o + m - 1 for o, m in zip(point.offset, margin, strict=True))",
        "tests/stepping/test_temporal_blocking.py::test_steps_between_exchanges_and_their_gradients_equal_those_with_them",
    ),
    # integrators and adjoints
    Mutation(
        "a stage of SSPRK3 has the other weight",
        "integrators/runge_kutta.py",
        "(3 / 4, 1.0), (1 / 3, 1.0)",
        "(1 / 4, 1.0), (1 / 3, 1.0)",
        "tests/integrators/test_runge_kutta.py::test_measured_order_is_the_scheme_s",
    ),
    Mutation(
        "a replay stores a step too far",
        "stepping/checkpointing/binomial_order.py",
        "return min(reach(states, repeats - 1), steps - reach(states - 1, repeats - 1))",
        "return min(reach(states, repeats - 1) + 1, steps - 1)",
        "tests/stepping/test_checkpoint_plans.py::test_no_order_advances_fewer_steps",
    ),
    Mutation(
        "a stage has the time of the one before",
        "integrators/runge_kutta.py",
        "now, _later(t, row[-2], dt), now",
        "now, t, now",
        "tests/integrators/test_runge_kutta.py::test_measured_order_is_the_scheme_s",
    ),
    Mutation(
        "a loop over stages repeats the first one",
        "integrators/runge_kutta.py",
        "return number + 1, jax",
        "return number, jax",
        "tests/project/test_compile_time.py::test_stages_in_a_loop_are_those_one_after_the_other",
    ),
    Mutation(
        "a first stage is mixed with the wrong share",
        "integrators/runge_kutta.py",
        "return u + (1 - alpha) * ((v - u)",
        "return u + alpha * ((v - u)",
        "tests/integrators/test_runge_kutta.py::test_measured_order_is_the_scheme_s",
    ),
    Mutation(
        "a GPU stores what a CPU does",
        "stencil/formulation.py",
        'return platform() != "gpu"',
        "return True",
        "tests/stencil/test_formulation.py::test_a_gas_puts_its_blocks_alone_into_memory_on_a_gpu",
    ),
    Mutation(
        "a linear map of one platform serves another",
        "jaxpr/linear_map.py",
        "for leaf in leaves), platform())",
        'for leaf in leaves), "")',
        "tests/stencil/test_formulation.py::test_what_was_traced_for_one_platform_does_not_serve_another",
    ),
    Mutation(
        "cotangents are not held",
        "stencil/materialise.py",
        "\n        return held(tree)",
        "\n        return tree",
        "tests/project/test_compile_time.py::test_what_is_held_in_reverse_is_held_there_alone",
    ),
    Mutation(
        "cotangents are read in another order",
        "stencil/materialise.py",
        "return [block[k] for k in range(block.shape[0])]",
        "return [block[-1 - k] for k in range(block.shape[0])]",
        "tests/project/test_compile_time.py::test_values_that_are_stored_have_the_derivatives_of_the_values",
    ),
    # clock, faults and models
    Mutation(
        "a clock forgets what it rounded",
        "stepping/clock.py",
        "added((clock.elapsed, clock.elapsed_low), dt)",
        "added((clock.elapsed, jnp.zeros_like(clock.elapsed)), dt)",
        "tests/stepping/test_clock.py::test_a_frame_has_as_many_short_steps_as_it_says",
    ),
    Mutation(
        "a failed run is zero",
        "status.py",
        "jnp.where(status == OK, 1, jnp.nan)",
        "jnp.where(status == OK, 1, 0)",
        "tests/stepping/test_faults.py::test_in_a_transform_what_follows_a_fault_is_no_number",
    ),
    Mutation(
        "every block along an axis counts its sides' fluxes",
        "models/flow/sides/balance.py",
        "domain.block_index(axis) == 0",
        "domain.block_index(axis) >= 0",
        "tests/models/flow/test_balance.py::test_fluxes_and_faults_do_not_depend_on_the_decomposition",
    ),
    Mutation(
        "an imbalance in time is not watched",
        "models/flow/sides/balance.py",
        "<= allowed, OK, UNBALANCED)",
        "<= allowed, OK, OK)",
        "tests/models/flow/test_balance.py::test_a_run_ends_where_it_goes_out_of_balance",
    ),
    Mutation(
        "only the cell above a face is kept positive",
        "ops/positivity.py",
        "inner = _inner_energy(_mix(middle, lower, share)),",
        "inner = _inner_energy(_mix(middle, upper, share)),",
        "tests/ops/test_riemann.py::test_mixed_fluxes_leave_positive_density_and_pressure",
    ),
    Mutation(
        "gravity is mirrored beyond a side with a pressure of its own",
        "models/gas/boundaries.py",
        "return Ghosts(0.0) if isinstance(boundary, Ghosts) else Dirichlet(0.0)",
        "return Dirichlet(0.0)",
        "tests/models/gas/test_atmospheres.py::test_an_atmosphere_between_any_sides_rests_to_rounding",
    ),
    Mutation(
        "what a wall conducts is carried too",
        "models/gas/boundaries.py",
        '_layout(sides, lambda side: side.heat(), "m2 s-2"),',
        '_layout(sides, lambda side: side.conducted(gas_constant) or side.heat(), "m2 s-2"),',
        "tests/models/gas/test_walls.py::test_no_mass_passes_a_wall",
    ),
    Mutation(
        "walls of a gas have no curvature",
        "models/gas/bodies/ghost_cells.py",
        "heat - (gamma - 1) / (2 * gamma) * faster",
        "heat + 0 * faster",
        "tests/models/gas/test_gas_bodies.py::test_a_vortex_needs_the_curvature_of_its_walls",
    ),
    Mutation(
        "gas that has met no wall is taken for smooth",
        "models/gas/bodies/ghost_cells.py",
        "return -(ratio + (1 - ratio) * jnp.clip(share, 0.0, 1.0)) * velocity",
        "return -ratio * velocity",
        "tests/models/gas/test_gas_bodies.py::test_gas_that_meets_a_wall_faster_than_sound_turns_round",
    ),
    Mutation(
        "bodies take what they give",
        "models/gas/bodies/gas_bodies.py",
        'forces = {f"force_{axis}": -m for',
        'forces = {f"force_{axis}": m for',
        "tests/models/gas/test_gas_bodies.py::test_a_box_gains_what_bodies_give",
    ),
    Mutation(
        "the distance from bodies has a kink in sides",
        "models/gas/bodies/ghost_cells.py",
        "(mirrored(layout), _going_on(layout)), halo)",
        "(mirrored(layout), mirrored(layout)), halo)",
        "tests/models/gas/test_gas_bodies.py::test_a_stream_along_an_inclined_wall_stays_one",
    ),
    Mutation(
        "ghost cells without room are left out without a word",
        "models/gas/bodies/ghost_cells.py",
        "return jnp.where(self.enough, ",
        "return jnp.where(self.enough | True, ",
        "tests/models/gas/test_gas_bodies.py::test_more_ghost_cells_than_there_is_room_for_are_no_numbers",
    ),
    Mutation(
        "a light gas is to keep a part of the mean with a heavy one",
        "ops/positivity.py",
        "MARGIN * jnp.minimum(kept, least)",
        "MARGIN * kept",
        "tests/models/gas/test_contacts.py::test_a_contact_at_rest_stays_to_the_last_bit",
    ),
    Mutation(
        "a mean is that of the next face",
        "ops/staggered.py",
        "first = 2 if there == CENTER else 0",
        "first = 1 if there == CENTER else 0",
        "tests/models/test_closure_places.py::test_fields_are_read_at_the_place_of_the_term_to_second_order",
    ),
    Mutation(
        "a stage is a mean by two weights",
        "integrators/runge_kutta.py",
        "u + (1 - alpha) * ((v - u) + change)",
        "alpha * u + (1 - alpha) * (v + change)",
        "tests/integrators/test_conservation.py::test_totals_of_the_default_scheme_stay_in_single_precision",
    ),
    # solvers
    Mutation(
        "the Laplacian's zero mode is not left out",
        "solvers/poisson.py",
        "inverse = jnp.where(total == 0, 0.0,",
        "inverse = jnp.where(total == 0, 1.0,",
        "tests/solvers/test_poisson.py::test_the_mean_of_a_singular_source_changes_nothing",
    ),
    Mutation(
        "a wave has the rate of one twice as long",
        "solvers/spectral.py",
        "eigenvalue(2 * index, n, h)",
        "eigenvalue(index, n, h)",
        "tests/models/flow/test_incompressible.py::test_projection_leaves_no_divergence_and_projects",
    ),
    Mutation(
        "half of the waves are padded each time they take over blocks",
        "solvers/spectral.py",
        "pads = onto == self._half and not placement[onto]",
        "pads = onto == self._half",
        "tests/solvers/test_spectral_basis.py::test_spectra_are_as_large_as_their_eigenvalues",
    ),
    Mutation(
        "zeros stand in front of half of the waves",
        "solvers/spectral.py",
        "[(0, more * (k == axis), 0) for",
        "[(more * (k == axis), 0, 0) for",
        "tests/solvers/test_poisson.py::test_decomposed_equals_undecomposed",
    ),
    Mutation(
        "conjugate gradients stop at the root of the tolerance",
        "solvers/krylov.py",
        "goal = tolerance**2 *",
        "goal = tolerance *",
        "tests/solvers/test_krylov.py::test_the_tolerance_is_that_of_the_residual",
    ),
    Mutation(
        "smoothing overshoots",
        "solvers/multigrid.py",
        "((2 * k - 3) * change + (4 * k - 2) * inverse * residual)",
        "((2 * k - 3) * change + (4 * k + 2) * inverse * residual)",
        "tests/solvers/test_multigrid.py::test_one_cycle_reduces_errors_by_a_factor_independent_of_size",
    ),
    Mutation(
        "negative wavenumbers begin a mode late",
        "solvers/fourier.py",
        "index < (n + 1) // 2",
        "index <= (n + 1) // 2",
        "tests/ops/test_spectrum.py::test_wavenumbers_are_those_of_an_fft",
    ),
    Mutation(
        "a mode too many is kept",
        "solvers/fourier.py",
        "max(0, math.ceil(share * size / 2) - 1)",
        "max(0, math.ceil(share * size / 2))",
        "tests/ops/test_spectrum.py::test_products_of_what_is_kept_have_no_aliases",
    ),
    # compiled programs
    Mutation(
        "messages take the longer way around",
        "inspect/links.py",
        "ahead = 1 if twice < length",
        "ahead = 1 if twice > length",
        "tests/inspect/test_estimate.py::test_an_exchange_of_all_with_all_loads_each_link_of_a_ring_by_an_eighth_of_the_square",
    ),
    Mutation(
        "an exchange is over when it begins",
        "inspect/time_estimate.py",
        "exposed = max(0.0, finish - self._now)",
        "exposed = max(0.0, self._now - finish)",
        "tests/inspect/test_estimate.py::test_work_after_the_end_hides_nothing",
    ),
    Mutation(
        "links carry all messages at once",
        "inspect/time_estimate.py",
        "begin = max([self._now, *(self._free.get(way, 0.0) for way in one.route.directions)])",
        "begin = self._now",
        "tests/inspect/test_estimate.py::test_messages_over_the_same_links_wait_for_each_other",
    ),
    Mutation(
        "a launch of a GPU costs nothing",
        "inspect/time_estimate.py",
        "launches.count * kernels.launch",
        "0.0 * launches.count * kernels.launch",
        "tests/inspect/test_estimate.py::test_a_kernel_takes_its_bytes_or_the_least_time_and_a_launch",
    ),
    Mutation(
        "an inverse real transform is one pass for each axis alone",
        "inspect/launches.py",
        'if kind and kind[1] == "IRFFT"',
        'if kind and kind[1] == "RFFT"',
        "tests/inspect/test_estimate.py::test_transforms_are_several_passes",
    ),
    Mutation(
        "a tile is as long as its first axis",
        "inspect/hlo.py",
        "zip(order, reversed(self.tile), strict=False)",
        "zip(order, self.tile, strict=False)",
        "tests/inspect/test_hlo.py::test_bytes_of_a_value_and_of_its_place_in_memory",
    ),
    # fields from files
    Mutation(
        "a region reads all of the file up to its end",
        "io/regrid.py",
        "needed = np.unique(sources)",
        "needed = np.arange(self.sources.max() + 1)",
        "tests/config/test_initial_regions.py::test_each_device_of_a_run_reads_its_own_part",
    ),
    Mutation(
        "what lies between the ends of a periodic axis is read",
        "io/regrid.py",
        "if gaps.size and gaps.max() > 1 else",
        "if gaps.size and gaps.max() > 99 else",
        "tests/config/test_initial_regions.py::test_a_region_that_is_interpolated_reads_what_lies_around_it",
    ),
    Mutation(
        "devices that hold copies read each for itself",
        "parallel.py",
        "if bounds not in made:",
        "if True:",
        "tests/config/test_initial_regions.py::test_each_device_of_a_run_reads_its_own_part",
    ),
    Mutation(
        "slopes within cells of a file have the other sign",
        "io/regrid.py",
        "np.concatenate([share, slope, -slope])",
        "np.concatenate([share, -slope, slope])",
        "tests/config/test_initial.py::test_a_periodic_wave_converges_at_second_order",
    ),
    Mutation(
        "the rest of a row in an archive is not passed",
        "io/initial_files.py",
        "        _skip(member, (rows - last) * row)\n        return",
        "        return",
        "tests/config/test_initial_regions.py::test_a_region_of_an_archive_is_read_in_pieces",
    ),
    Mutation(
        "a value that is not finite is told by its place in the region",
        "io/initial.py",
        "(places + firsts).T",
        "places.T",
        "tests/config/test_initial_regions.py::test_values_that_are_not_finite_are_found_in_the_region_that_reads_them",
    ),
    Mutation(
        "what leaves through an upper side counts as come in",
        "models/balances.py",
        "{name: -rate for name, rate in own.items()}",
        "{name: rate for name, rate in own.items()}",
        "tests/driver/test_balances.py::test_each_side_has_what_passes_it",
    ),
    Mutation(
        "the fluxes of one side are those of the other",
        "models/conserved.py",
        "start = 0 if side == LOWER",
        "start = 0 if side != LOWER",
        "tests/driver/test_balances.py::test_an_open_box_with_sources_closes_at_every_step",
    ),
    Mutation(
        "floors make nothing",
        "models/balances.py",
        "state.gained + added_up(self.domain, restored)",
        "state.gained",
        "tests/driver/test_balances.py::test_a_gas_closes_with_gravity_and_floors",
    ),
    Mutation(
        "of few steps one is not transposed",
        "stepping/checkpointing/loops.py",
        "for _ in range(count):",
        "for _ in range(count - 1):",
        "tests/stepping/test_few_steps.py::test_derivatives_are_those_of_all_values_kept",
    ),
    Mutation(
        "few steps are not taken again",
        "stepping/checkpointing/loops.py",
        "again = jax.checkpoint(few, prevent_cse=False)",
        "again = few",
        "tests/stepping/test_few_steps.py::test_memory_follows_a_fraction_of_the_steps",
    ),
    Mutation(
        "the layers of two sides are exchanged",
        "models/waves/pml.py",
        "in_lower_half == (side == LOWER)",
        "in_lower_half != (side == LOWER)",
        "tests/models/waves/test_wave_energy.py::test_a_pulse_leaves_through_the_side_that_it_runs_to",
    ),
    Mutation(
        "a harmonic mean along surfaces",
        "models/waves/wave_surfaces.py",
        "1 / (across * inverse + (1 - across) / plain)",
        "1 / ((1 - across) * inverse + across / plain)",
        "tests/models/waves/test_surfaces.py::test_a_plane_along_the_grid_has_a_harmonic_mean_across_it_and_arithmetic_ones_along",
    ),
    Mutation(
        "a normal in numbers of cells",
        "models/waves/wave_surfaces.py",
        "change * (widths[axis] / width)",
        "change",
        "tests/models/waves/test_surfaces.py::test_an_oblique_plane_is_weighed_with_the_squares_of_its_normal",
    ),
    Mutation(
        "the image of a medium beyond a periodic side",
        "models/waves/wave_surfaces.py",
        "if layout.is_periodic(axis) else",
        "if not layout.is_periodic(axis) else",
        "tests/models/waves/test_surfaces.py::test_a_plane_along_the_grid_has_a_harmonic_mean_across_it_and_arithmetic_ones_along",
    ),
    Mutation(
        "a velocity between two others is of second order",
        "ops/momentum_advection.py",
        "BETWEEN = (-1 / 16, 9 / 16, 9 / 16, -1 / 16)",
        "BETWEEN = (0.0, 0.5, 0.5, 0.0)",
        "tests/models/flow/test_momentum_schemes.py::test_order_of_the_operator_on_a_manufactured_field",
    ),
    Mutation(
        "an upwind face takes the right value as the left one",
        "ops/momentum_advection.py",
        "carried(value(lambda k: first + k), value(lambda k: first + 1 - k), by)",
        "carried(value(lambda k: first + 1 - k), value(lambda k: first + k), by)",
        "tests/models/flow/test_momentum_schemes.py::test_momentum_and_energy",
    ),
    Mutation(
        "the pressure of a fourth-order flow is of second order",
        "solvers/poisson.py",
        "return values if order == 2 else values * (1",
        "return values if order == 2 else values + 0 * (1",
        "tests/models/flow/test_momentum_schemes.py::test_momentum_and_energy",
    ),
    Mutation(
        "the wider filter is as wide as the grid's",
        "ops/germano.py",
        "\nWIDTH = 2\n",
        "\nWIDTH = 1\n",
        "tests/models/flow/test_dynamic_smagorinsky.py::test_round_strain_has_the_length_that_algebra_says",
    ),
    Mutation(
        "salt rises",
        "models/flow/boussinesq.py",
        "-params.scalar_expansion[number]",
        "params.scalar_expansion[number]",
        "tests/models/flow/test_several_scalars.py::test_salt_fingers_grow_as_linear_theory_says",
    ),
    Mutation(
        "the step forgets that scalars diffuse",
        "models/flow/several_scalars.py",
        "if self.scalar_layouts else largest",
        "if not self.scalar_layouts else largest",
        "tests/models/flow/test_several_scalars.py::test_the_step_knows_the_largest_diffusivity",
    ),
    Mutation(
        "a dynamic coefficient is averaged over a block only",
        "models/flow/step/momentum.py",
        "(domain.total(jnp.sum(part, axis=along, keepdims=True), axes) for part in parts)",
        "(jnp.sum(part, axis=along, keepdims=True) for part in parts)",
        "tests/models/flow/test_dynamic_smagorinsky.py::test_the_coefficient_does_not_depend_on_the_decomposition",
    ),
    Mutation(
        "a wall that holds a velocity lets its friction go",
        "solvers/line_modes.py",
        "2 * held[1] / widths[-1]",
        "held[1] / widths[-1]",
        "tests/models/flow/test_implicit_viscosity.py::test_a_stage_solves_its_stokes_problem",
    ),
    Mutation(
        "a wall takes the work that it does",
        "models/flow/step/budgets.py",
        "work = work + self._on_side",
        "work = work - self._on_side",
        "tests/models/flow/test_budgets.py::test_a_wall_that_drags_a_flow_along",
    ),
    Mutation(
        "a viscous layer on a modelled wall has half the friction",
        "models/flow/sides/wall_model.py",
        "tau / fast, 2 * a)",
        "tau / fast, a)",
        "tests/models/flow/test_wall_model.py::test_slow_flow_has_the_friction_of_a_resolved_layer",
    ),
    Mutation(
        "a modelled wall slows the second cells",
        "models/flow/sides/wall_model.py",
        "index == (0 if end == LOWER else last)",
        "index == (1 if end == LOWER else last)",
        "tests/models/flow/test_wall_model.py::test_fast_flow_is_slowed_against_its_direction_in_the_cells_on_walls_alone",
    ),
    Mutation(
        "eddies at an inflow point along their waves",
        "models/flow/sides/turbulent_inflow.py",
        "jnp.roll(turned, -1, axis=1)",
        "jnp.roll(turned, 0, axis=1)",
        "tests/models/flow/test_turbulent_inflow.py::test_eddies_have_no_divergence",
    ),
    Mutation(
        "members of an ensemble have the same eddies",
        "driver/start/build.py",
        "np.random.default_rng([seed, member])",
        "np.random.default_rng([seed, 0])",
        "tests/models/flow/test_turbulent_inflow.py::test_members_draw_eddies_of_their_own_by_their_numbers",
    ),
    Mutation(
        "eddies at an inflow are the same in every run",
        "driver/start/build.py",
        "np.random.default_rng([seed, member])",
        "np.random.default_rng([0, member])",
        "tests/models/flow/test_turbulent_inflow.py::test_the_velocity_at_the_side_is_the_given_one_with_eddies_of_the_seed",
    ),
    Mutation(
        "cells of particles are taken to begin with mesh cells",
        "particles/mesh.py",
        "places = places - jnp.asarray(nodes.shifts()",
        "places = places - 0 * jnp.asarray(nodes.shifts()",
        "tests/particles/test_particle_mesh.py::test_weights_are_those_of_the_literature",
    ),
    Mutation(
        "torques count one component of the force alone",
        "models/flow/bodies/solid_moments.py",
        "turned[number] - jnp.sum(amount * r[b])",
        "turned[number] - 0 * jnp.sum(amount * r[b])",
        "tests/models/flow/test_free_body.py::test_torque_about_another_point_is_that_of_the_force",
    ),
    Mutation(
        "a uniform stream has no curvature of what it carries",
        "ops/gas.py",
        "functools.reduce(jnp.logical_and, jax.tree.leaves(same))",
        "same.density",
        "tests/models/gas/test_compressible.py::test_what_a_uniform_stream_carries_alone_is_of_fifth_order",
    ),
    Mutation(
        "the kink at a given state of a gas counts as a curvature",
        "ops/gas.py",
        "(~(uniform[0] | uniform[1]))",
        "(~(uniform[0] & ~uniform[0]))",
        "tests/models/test_order_at_sides.py::test_a_stream_of_gas_brings_the_density_that_it_is_given",
    ),
    Mutation(
        "a free body has no virtual mass",
        "models/flow/bodies/free_body.py",
        "return VIRTUAL_SHARE * (",
        "return 0 * (",
        "tests/models/flow/test_free_body.py::test_fluid_and_body_keep_their_momentum_whatever_the_density",
    ),
    Mutation(
        "friction without bound is explicit in part",
        "models/flow/bodies/solids.py",
        "rate / lower / lower",
        "rate / lower",
        "tests/models/flow/test_solids.py::test_a_value_is_held_as_the_surface_passes_it_though_all_around_is_fluid",
    ),
    Mutation(
        "edges hold nothing",
        "models/flow/bodies/solid_geometry.py",
        "jnp.minimum(low, _behind_edges(depth))",
        "jnp.minimum(low, low)",
        "tests/models/flow/test_solids.py::test_a_value_is_held_as_the_surface_passes_it_though_all_around_is_fluid",
    ),
    Mutation(
        "profiles count the whole depth of faces in bodies",
        "models/flow/bodies/solids.py",
        "(mean - beta * behind)",
        "(mean - beta * own)",
        "tests/models/flow/test_solids.py::"
        "test_what_flows_beside_a_moving_body_does_not_jump_where_the_surface_passes_faces",
    ),
    Mutation(
        "the virtual mass is that without friction",
        "models/flow/bodies/solid_stage.py",
        "free_body.motions(immersion, domain, layout, start, reach)",
        "free_body.motions(immersion, domain, layout, start, solids.Reach(start, start))",
        "tests/models/flow/test_free_body.py::test_the_virtual_mass_does_not_jump_where_the_surface_passes_faces",
    ),
    Mutation(
        "a free body weighs as in a vacuum",
        "models/flow/bodies/free_body.py",
        "force = (params.density - 1) * bulk",
        "force = params.density * bulk",
        "tests/models/flow/test_free_body.py::test_fluid_and_body_keep_their_momentum_whatever_the_density",
    ),
    Mutation(
        "small cells keep their gain to themselves",
        "models/flow/bodies/solid_scalars.py",
        "(part < 0.5) & (fullest > part)",
        "(part < 0.0) & (fullest > part)",
        "tests/models/flow/test_solid_scalars.py::test_cut_cells_conserve_and_do_not_limit_the_time_step",
    ),
    Mutation(
        "a surface is looked for away from it",
        "models/flow/bodies/surface_readings.py",
        "jnp.where(inside, 1, -1)",
        "jnp.where(inside, -1, 1)",
        "tests/models/flow/test_body_surface.py::test_a_point_in_space_is_that_nearest_to_its_place",
    ),
    Mutation(
        "values count that lie in bodies",
        "models/flow/bodies/surface_readings.py",
        "jnp.clip(cells * jnp.minimum(depth, over), 0, 1)",
        "jnp.clip(2 + cells * jnp.minimum(depth, over), 0, 1)",
        "tests/models/flow/test_body_surface.py::test_what_is_read_of_exact_fields_is_of_second_order",
    ),
    Mutation(
        "a given value does not go on into the fluid",
        "models/flow/bodies/solid_scalars.py",
        "reach) - self._kept(domain, value,",
        "reach) + self._kept(domain, value,",
        "tests/models/flow/test_solid_scalars.py::test_a_warm_body_that_drifts_with_a_stream_as_warm_leaves_it_alone",
    ),
    Mutation(
        "the direct solve around bodies keeps a mean",
        "solvers/capacitance.py",
        "jnp.where(self.connected, x - mean, 0.0)",
        "jnp.where(self.connected, x, 0.0)",
        "tests/solvers/test_capacitance.py::test_a_shift_that_holds_constants_does_not_hold_back_the_solve",
    ),
    Mutation(
        "the initial state of a run has no place",
        "driver/programs/placed_run.py",
        "return self._place(state, self.state_specs)",
        "return state",
        "tests/driver/test_compilations.py",
    ),
    Mutation(
        "the last window of a member is the next one's first",
        "io/state_windows.py",
        'side="right"',
        'side="left"',
        "tests/data/test_windows.py::test_every_window_is_what_the_run_wrote",
    ),
    Mutation(
        "windows go on after a member has failed",
        "io/saved_runs.py",
        "np.where(known.all(axis=1), total, ",
        "np.where(known.any(axis=1), total, ",
        "tests/data/test_windows.py::test_states_after_the_end_of_a_member_are_in_no_window",
    ),
    Mutation(
        "processes share windows",
        "data/batches.py",
        "dataset[number:shared:parts]",
        "dataset[0:shared:parts]",
        "tests/data/test_windows.py::test_parts_of_processes_are_disjoint_and_cover",
    ),
    Mutation(
        "components of a vector stand in the wrong order",
        "io/well.py",
        "[parts[k] for k in axes]",
        "[parts[k] for k in sorted(axes)]",
        "tests/io/test_layouts.py::test_a_file_of_the_well_obeys_its_layout_and_has_the_runs_values",
    ),
    Mutation(
        "a stage weighs less for the accounts than for the fields",
        "integrators/runge_kutta.py",
        "change = dt * beta * k",
        "change = dt * (beta if v.shape[1:] != (5,) else 0.99 * beta) * k",
        "tests/driver/test_balances.py::test_an_open_box_with_sources_closes_at_every_step",
    ),
    # numbers that were not looked at
    Mutation(
        "an interval holds 90 % of what it says 95 % of",
        "schema/inverse.py",
        "NORMAL_95 = 1.959963984540054",
        "NORMAL_95 = 1.6448536269514722",
        "tests/inverse/test_solvers.py::test_an_interval_holds_95_percent_of_a_normal_distribution",
    ),
    Mutation(
        "a band around a profile holds 90 %",
        "report/inverse_rows.py",
        "half = NORMAL_95 *",
        "half = 1.645 *",
        "tests/inverse/test_inversion_output.py::"
        "test_the_band_around_a_profile_holds_95_percent_of_a_normal_distribution",
    ),
    Mutation(
        "a conductor takes half of the heat",
        "models/waves/light_energy.py",
        "{ENERGY: 0.5 * heat}",
        "{ENERGY: 0.25 * heat}",
        "tests/models/waves/test_wave_energy.py::test_heat_of_conduction_is_what_fields_lose",
    ),
    Mutation(
        "a box at constant pressure has three dimensions",
        "models/molecular/barostat.py",
        "/ (ndim * volume)",
        "/ (3 * volume)",
        "tests/models/molecular/test_barostat.py::"
        "test_a_box_follows_the_pressure_of_momentum_and_forces_in_every_dimension",
    ),
    Mutation(
        "a body turns about its own axes",
        "models/flow/bodies/free_body.py",
        "w * spin + jnp.cross(spin, v)",
        "w * spin - jnp.cross(spin, v)",
        "tests/models/flow/test_free_body.py::test_a_turned_body_turns_on_about_its_spin",
    ),
    Mutation(
        "the real part of a quaternion grows with a turn",
        "models/flow/bodies/free_body.py",
        "[-jnp.dot(spin, v)[None]",
        "[jnp.dot(spin, v)[None]",
        "tests/models/flow/test_free_body.py::test_a_turned_body_turns_on_about_its_spin",
    ),
    Mutation(
        "a free body is sped up by its own inertia",
        "models/flow/bodies/free_body.py",
        "set(-jnp.linalg.solve(inertia",
        "set(jnp.linalg.solve(inertia",
        "tests/models/flow/test_free_body.py::test_a_turned_body_turns_on_about_its_spin",
    ),
    Mutation(
        "a list takes a neighbour less than it may",
        "particles/neighbor_list.py",
        "cells.domain.max(longest) > max_neighbors",
        "cells.domain.max(longest) > max_neighbors - 1",
        "tests/particles/test_cells_and_pairs.py::test_a_list_as_long_as_the_most_neighbours_is_long_enough",
    ),
    Mutation(
        "each device tells of its own list alone",
        "particles/neighbor_list.py",
        "cells.domain.max(longest) > max_neighbors",
        "longest > max_neighbors",
        "tests/particles/test_cells_and_pairs.py::test_a_list_as_long_as_the_most_neighbours_is_long_enough",
    ),
    Mutation(
        "each device trusts its own list",
        "stepping/one_step.py",
        "model.domain.max(farthest) <= 1",
        "farthest <= 1",
        "tests/stepping/test_faults.py::test_an_arrangement_that_no_longer_serves_one_device_ends_the_run_on_all",
    ),
    Mutation(
        "a full cell is told along the last axis alone",
        "particles/migration.py",
        "full = full | jnp.any(count",
        "full = jnp.any(count",
        "tests/particles/test_cells_and_pairs.py::test_a_cell_that_is_full_along_one_axis_is_told",
    ),
    Mutation(
        "a cell of the grid reads a cell more of the file",
        "io/regrid.py",
        'wanted[1:], side="left")',
        'wanted[1:], side="right")',
        "tests/config/test_initial_regions.py::test_a_region_that_is_interpolated_reads_what_lies_around_it",
    ),
    Mutation(
        "a cell of the grid takes a cell more of the file",
        "io/regrid.py",
        'side="left") - 1, first',
        'side="left"), first',
        "tests/config/test_initial.py::test_a_periodic_wave_converges_at_second_order",
    ),
    Mutation(
        "parts of a period are half as wide",
        "io/time_statistics_files.py",
        "half = 0.5 / phase.bins",
        "half = 0.25 / phase.bins",
        "tests/driver/test_time_statistics.py::test_parts_of_a_period_leave_no_gap",
    ),
    Mutation(
        "a maximum has the time at which it occurred last",
        "stepping/moments.py",
        "value > sums.max[name].value",
        "value >= sums.max[name].value",
        "tests/driver/test_time_statistics.py::test_extremes_have_the_time_at_which_they_occurred_first",
    ),
    Mutation(
        "a minimum has the time at which it occurred last",
        "stepping/moments.py",
        "value < sums.min[name].value",
        "value <= sums.min[name].value",
        "tests/driver/test_time_statistics.py::test_extremes_have_the_time_at_which_they_occurred_first",
    ),
    Mutation(
        "a second attempt has the step of the first",
        "driver/loop/grouping.py",
        "part = 2.0**-group.halvings",
        "part = 1.0",
        "tests/driver/test_groups.py::test_a_second_attempt_has_half_the_step",
    ),
    Mutation(
        "friction of a gas limits the step half as much",
        "models/gas/compressible.py",
        "rate + 2 * diffusion / state.density",
        "rate + diffusion / state.density",
        "tests/models/gas/test_compressible.py::"
        "test_friction_and_conduction_limit_the_step_as_a_second_difference_does",
    ),
    Mutation(
        "the test filter is wider than it says",
        "ops/germano.py",
        "OUTER = 1 / 6",
        "OUTER = 1 / 5",
        "tests/models/flow/test_dynamic_smagorinsky.py::test_the_filter_is_as_wide_as_the_model_takes_it_to_be",
    ),
    Mutation(
        "a filter along some axes counts along all",
        "ops/germano.py",
        "WIDTH ** (2 * len(axes) / ndim)",
        "WIDTH ** 2",
        "tests/models/flow/test_dynamic_smagorinsky.py::test_the_filter_is_as_wide_as_the_model_takes_it_to_be",
    ),
    Mutation(
        "an upper wall has the cells of the lower one",
        "models/flow/sides/wall_model.py",
        "domain.wall_spacing(axis, lines[0].dtype)[end]",
        "domain.wall_spacing(axis, lines[0].dtype)[LOWER]",
        "tests/models/flow/test_wall_model.py::test_each_wall_has_its_own_cells_and_the_speed_on_their_faces",
    ),
    Mutation(
        "a wall reads the other component on the faces of the next cell",
        "models/flow/sides/wall_model.py",
        "(k == own) * below + (k == other) * above",
        "(k == own) * above + (k == other) * below",
        "tests/models/flow/test_wall_model.py::test_each_wall_has_its_own_cells_and_the_speed_on_their_faces",
    ),
    Mutation(
        "the last cells of blocks take their differences like the first",
        "solvers/lines.py",
        "jnp.conj(minus) * half",
        "minus * half",
        "tests/solvers/test_poisson.py::test_lines_that_are_cut_into_blocks_are_solved",
    ),
    Mutation(
        "the last cells of blocks take their means like the first",
        "solvers/lines.py",
        "jnp.conj(plus) * mean",
        "plus * mean",
        "tests/solvers/test_poisson.py::test_lines_that_are_cut_into_blocks_are_solved",
    ),
    Mutation(
        "the mirrored half of a spectrum is not conjugated",
        "solvers/dft.py",
        "_conjugate(jnp.flip(half[:, :, :, 1 : (a + 1) // 2], (2, 3)))",
        "jnp.flip(half[:, :, :, 1 : (a + 1) // 2], (2, 3))",
        "tests/solvers/test_dft.py::test_single_precision_keeps_six_digits",
    ),
    Mutation(
        "the mirrored half of an inverse is not conjugated",
        "solvers/dft.py",
        "_conjugate(jnp.flip(parts[:, :, 1 : (n + 1) // 2], 2))",
        "jnp.flip(parts[:, :, 1 : (n + 1) // 2], 2)",
        "tests/solvers/test_dft.py::test_single_precision_keeps_six_digits",
    ),
]


def main(word: str = "") -> int:
    chosen = [mutation for mutation in MUTATIONS if word in mutation.name]
    unnoticed = 0
    for mutation in chosen:
        why = mutation.survives()
        unnoticed += bool(why)
        print(f"{'NOT NOTICED' if why else 'noticed'}  {mutation.name}  ({mutation.test}) {why}", flush=True)
    print(f"{len(chosen) - unnoticed} of {len(chosen)} faults noticed")
    return unnoticed


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
