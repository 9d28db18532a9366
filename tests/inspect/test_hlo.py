"""Reading the text of compiled programs: lines as XLA writes them for TPUs, GPUs and processors."""

import pytest

from simjax.inspect.hlo import Shape, parse, shapes_in
from simjax.inspect.work import Work, work_of

LOOP = """\
HloModule jit_run, is_scheduled=true, entry_computation_layout={(f32[8,256]{1,0:T(8,128)})->f32[8,256]{1,0:T(8,128)}}

%fused (param_0.1: f32[8,256], param_1.2: f32[8,256]) -> f32[8,256] {
  %param_0.1 = f32[8,256]{1,0:T(8,128)} parameter(0)
  %param_1.2 = f32[8,256]{1,0:T(8,128)S(1)} parameter(1)
  %slice.3 = f32[8,128]{1,0:T(8,128)} slice(%param_0.1), slice={[0:8], [0:128]}
  %pad.1 = f32[8,256]{1,0:T(8,128)} pad(%slice.3, %param_1.2), padding=0_0x0_128
  ROOT %add.1 = f32[8,256]{1,0:T(8,128)} add(%pad.1, %param_1.2)
}

%body (arg: (s32[], f32[8,256])) -> (s32[], f32[8,256]) {
  %arg = (s32[]{:T(128)}, f32[8,256]{1,0:T(8,128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%arg), index=0
  %u = f32[8,256]{1,0:T(8,128)} get-tuple-element(%arg), index=1
  %near = f32[8,256]{1,0:T(8,128)S(1)} copy(%u)
  %f = f32[8,256]{1,0:T(8,128)} fusion(%u, %near), kind=kLoop, calls=%fused, metadata={op_name="a(b)=%c"}, \
backend_config={"window_config":{"estimated_cycles":"1500"}}
  ROOT %out = (s32[]{:T(128)}, f32[8,256]{1,0:T(8,128)}) tuple(%i, %f)
}

%condition (arg.1: (s32[], f32[8,256])) -> pred[] {
  %bound = s32[]{:T(128)} constant(12)
  %arg.1 = (s32[]{:T(128)}, f32[8,256]{1,0:T(8,128)}) parameter(0)
  %i.1 = s32[]{:T(128)} get-tuple-element(%arg.1), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i.1, %bound), direction=LT
}

ENTRY %main (u.1: f32[8,256]) -> (s32[], f32[8,256]) {
  %u.1 = f32[8,256]{1,0:T(8,128)} parameter(0)
  %zero = s32[]{:T(128)} constant(0)
  %start = (s32[]{:T(128)}, /*index=1*/f32[8,256]{1,0:T(8,128)}) tuple(%zero, %u.1)
  ROOT %loop = (s32[]{:T(128)}, f32[8,256]{1,0:T(8,128)}) while(%start), condition=%condition, body=%body
}
"""


def test_computations_and_loops_are_found():
    program = parse(LOOP)
    assert program.entry == "main" and set(program.computations) == {"fused", "body", "condition", "main"}
    loop = program["main"].root
    assert (loop.op, loop.called("body"), program.trip_count(loop)) == ("while", "body", 12)
    assert program["main"].by_name["start"].operands == ("zero", "u.1")


def test_a_loop_of_unknown_length_is_not_guessed():
    program = parse(LOOP.replace("direction=LT", "direction=GT"))
    assert program.trip_count(program["main"].root) is None


def test_the_text_for_other_devices_says_how_often():
    told = 'body=%body, backend_config={"known_trip_count":{"n":"7"}}'
    program = parse(LOOP.replace("body=%body", told))
    assert program.trip_count(program["main"].root) == 7


def test_a_fusion_reads_what_it_takes_of_slices_and_nothing_that_stays_on_the_chip():
    program = parse(LOOP)
    body = program["body"]
    # Read: half of a field. Written: a field. One addition for each cell.
    assert work_of(program, body, body.by_name["f"]) == Work(8 * 128 * 4 + 8 * 256 * 4, 8 * 256, 0, 1500)
    # From the main memory to the chip's own: read alone.
    assert work_of(program, body, body.by_name["near"]).bytes == 8 * 256 * 4


@pytest.mark.parametrize(
    ("text", "size", "padded"),
    [
        ("f32[256,256]{1,0:T(8,128)}", 2**18, 2**18),
        # One column: its rows are padded to eight, or to tiles of a row.
        ("f32[512,1]{1,0:T(8,128)}", 2048, 512 * 128 * 4),
        ("f32[512,1]{0,1:T(1,128)}", 2048, 2048),
        ("bf16[3,130]{1,0:T(8,128)(2,1)}", 780, 8 * 256 * 2),
        ("pred[]{:T(512)}", 1, 1),
        ("f32[1024,512]{0,1}", 2**21, 2**21),
    ],
)
def test_bytes_of_a_value_and_of_its_place_in_memory(text, size, padded):
    (shape,) = shapes_in(text)
    assert (shape.bytes, shape.padded_bytes) == (size, padded)


def test_spaces_of_memory_are_read():
    spaces = [shape.space for shape in shapes_in("(f32[4]{0:T(128)S(1)}, u32[]{:S(2)}, f32[4]{0:T(128)S(5)}, f32[4])")]
    assert spaces == [1, 2, 5, 0]
    assert Shape("f32", (4,)) == shapes_in("f32[4]")[0]


def _first(line):
    return parse(f"ENTRY %main (p: f32[4]) -> f32[4] {{\n  %p = f32[4] parameter(0)\n  {line}\n}}")["main"].root


@pytest.mark.parametrize(
    ("written", "groups"),
    [
        ("replica_groups={{0,4},{1,5}}", ((0, 4), (1, 5))),
        ("replica_groups=[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("replica_groups={}", ()),
    ],
)
def test_groups_of_devices_are_read(written, groups):
    assert _first(f"ROOT %a = f32[4] all-reduce(%p), channel_id=1, {written}, to_apply=%sum").groups == groups


def test_messages_of_a_permutation_are_read():
    one = _first("ROOT %c = f32[4] collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,2},{2,0}}")
    assert one.pairs == ((0, 1), (1, 2), (2, 0)) and not one.is_synchronous
    text = (
        '(f32[4], f32[4]) collective-permute-start(%p), backend_config={"collective_backend_config":{"is_sync":true}}'
    )
    assert _first(f"ROOT %c = {text}").is_synchronous


@pytest.mark.parametrize(
    ("line", "operations"),
    [
        # (64 x 32) (32 x 16); a batch of products as a TPU writes it, six passes for float32.
        ("f32[64,16] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 2 * 64 * 16 * 32),
        (
            "f32[64,16] convolution(%a, %b), dim_labels=bf_io->bf, operand_precision={highest,highest}",
            12 * 64 * 16 * 32,
        ),
    ],
)
def test_products_of_matrices_are_counted(line, operations):
    head = "ENTRY %main (a: f32[64,32], b: f32[32,16]) -> f32[64,16] {\n  %a = f32[64,32] parameter(0)\n"
    program = parse(f"{head}  %b = f32[32,16] parameter(1)\n  ROOT %c = {line}\n}}")
    assert work_of(program, program["main"], program["main"].root).matrix == operations
