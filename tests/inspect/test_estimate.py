"""Time of a step from a scheduled program, on a chip whose figures make every number a whole one."""

import pytest

from simjax.chips import CHIPS, Chip, Kernels
from simjax.errors import ConfigurationError
from simjax.inspect.hlo import parse
from simjax.inspect.links import Switch, Torus, exchanges
from simjax.inspect.target import Target
from simjax.inspect.time_estimate import Estimator

# A field of 1000 cells takes 8 s to be read and written, a message 4 s and 1 s for each hop.
CHIP = Chip("a chip", 1e6, 1e3, 1e9, 1e9, 1.0, "ICI", 1e3, 1.0)
RING = Torus(((0,), (1,), (2,), (3,)), (4,), (True,))
RIGHT = "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
HEAD = "%sum (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  ROOT %b = f32[] parameter(1)\n}\n\n"


def step(*lines, network=RING, chip=CHIP):
    """The tally of a program of these lines, whose argument is `%u`."""
    text = f"{HEAD}ENTRY %main (u: f32[1000]) -> f32[1000] {{\n  %u = f32[1000] parameter(0)\n"
    return Estimator(parse(text + "".join(f"  {line}\n" for line in lines) + "}"), chip, network).step(1)[0]


START = f"%s = (f32[1000], f32[1000]) collective-permute-start(%u), {RIGHT}"
DONE = "%d = f32[1000] collective-permute-done(%s)"
COPY = "%c = f32[1000] copy(%u)"


def test_work_between_start_and_end_hides_an_exchange():
    hidden = step(START, COPY, DONE)
    assert (hidden.seconds, hidden.exposed) == (8, 0)
    (one,) = hidden.exchanges
    assert (one.seconds, one.beside, one.bytes, one.route.directions) == (5, 8, 4000, ("x+",))
    assert one.is_asynchronous


def test_work_after_the_end_hides_nothing():
    assert step(START, DONE, COPY).exposed == 5
    assert step(f"%d = f32[1000] collective-permute(%u), {RIGHT}", COPY).exposed == 5


def test_messages_over_the_same_links_wait_for_each_other():
    again = [line.replace("%s", "%t").replace("%d", "%e") for line in (START, DONE)]
    # They take 10 s together, of which 8 are hidden.
    assert step(START, again[0], COPY, DONE, again[1]).exposed == 2
    back = again[0].replace(RIGHT, "source_target_pairs={{1,0},{2,1},{3,2},{0,3}}")
    assert step(START, back, COPY, DONE, again[1]).exposed == 0


def test_a_message_around_the_end_of_a_line_goes_all_the_way_back():
    line = Torus(RING.places, (4,), (False,))
    assert step(START, DONE, network=line).exposed == 4 + 3


def test_what_a_loop_does_counts_as_often_as_it_runs():
    program = parse(
        f"{HEAD}%body (u: f32[1000]) -> f32[1000] {{\n  %u = f32[1000] parameter(0)\n"
        f"  {START}\n  {COPY}\n  {DONE}\n}}\n\n"
        "%condition (v: f32[1000]) -> pred[] {\n  %v = f32[1000] parameter(0)\n  %n = s32[] constant(6)\n"
        "  ROOT %lt = pred[] compare(%v, %n), direction=LT\n}\n\n"
        "ENTRY %main (w: f32[1000]) -> f32[1000] {\n  %w = f32[1000] parameter(0)\n"
        "  %l = f32[1000] while(%w), condition=%condition, body=%body\n"
        "  ROOT %r = f32[] all-reduce(%w), replica_groups={}, to_apply=%sum\n}"
    )
    one, call = Estimator(program, CHIP, RING).step(3)  # two turns for each step
    assert (one.seconds, one.work.bytes) == (16, 16000)
    assert [(e.kind, e.count) for e in one.exchanges] == [("collective-permute", 2)]
    assert [(e.kind, e.count, e.participants) for e in call.exchanges] == [("all-reduce", 1, 4)]


def test_the_branch_that_works_is_taken():
    text = (
        "%idle (a: f32[1000]) -> f32[1000] {\n  ROOT %a = f32[1000] parameter(0)\n}\n\n"
        f"%busy (u: f32[1000]) -> f32[1000] {{\n  %u = f32[1000] parameter(0)\n  {COPY}\n}}\n\n"
        "ENTRY %main (w: f32[1000]) -> f32[1000] {\n  %w = f32[1000] parameter(0)\n"
        "  ROOT %l = f32[1000] conditional(%w, %w, %w), branch_computations={%idle, %busy}\n}"
    )
    assert Estimator(parse(text), CHIP, RING).step(1)[0].seconds == 8


@pytest.mark.parametrize("count", [4, 8, 16])
def test_an_exchange_of_all_with_all_loads_each_link_of_a_ring_by_an_eighth_of_the_square(count):
    ring = Torus(tuple((n,) for n in range(count)), (count,), (True,))
    route = ring.route(exchanges([tuple(range(count))]))
    assert (route.load, route.hops) == (count**2 // 8, count // 2)


def test_a_switch_takes_as_many_messages_as_a_device_sends():
    route = Switch(8).route(exchanges([tuple(range(8))]))
    assert (route.load, route.hops) == (7, 1)


def test_one_chip_sends_nothing():
    alone = Torus(((0, 0),), (1, 1), (False, False))
    assert step("%r = f32[] all-reduce(%u), replica_groups={{0}}, to_apply=%sum", network=alone).exposed == 0


@pytest.mark.parametrize(
    "text", ["v5e", "v5e:16", "v5p:4x4", "h100:2x4", "v9:2x2", "cpu:0", "v5e:4x", "4x4", "h100:", "cpu"]
)
def test_a_target_that_is_none_is_refused(text):
    with pytest.raises(ConfigurationError, match=r"^target=.*write target=\w+:\d"):
        Target.read(text)


def test_one_gpu_needs_no_number():
    assert Target.read("h100") == Target.read("h100:1") and Target.read("h100").count == 1
    assert Target.read("h100:8").count == 8


def test_rings_of_a_torus_close_where_the_chips_do():
    assert Target.read("v5e:16x16").wraps == (True, True) and Target.read("v5e:8x16").wraps == (False, True)
    assert Target.read("v5p:4x4x8").wraps == (True,) * 3 and Target.read("v4:2x2x4").wraps == (False, False, True)


def test_figures_of_chips_are_those_of_one_device():
    # Two devices on a chip share what it has.
    assert CHIPS["v4"].memory == 17.2e9 and Target.read("v4:2x2x4").count == 32
    assert CHIPS["v5e"].vector == pytest.approx(6.1e12, rel=0.01)


# A field of 1000 cells is read and written in 8 s by a kernel of XLA's own, in 4 s by a copy; a launch costs 1 s more,
# and no kernel takes less than 3 s.
GPU = Chip("a GPU", 1e6, 1e9, 1e9, 1e9, 1.0, "NVLink", 1e3, 1.0, False, kernels=Kernels(1.0, 3.0, 1e3, 2e3))
ON_A_GPU = {"network": Switch(1), "chip": GPU}
SMALL = "%n = f32[] negate(%a)"


def test_a_kernel_takes_its_bytes_or_the_least_time_and_a_launch():
    long = step("%n = f32[1000] negate(%u)", **ON_A_GPU)
    assert (long.seconds, long.launches) == (8 + 1, {"fusions": 1})
    assert {name: seconds for name, seconds in long.by_limit.items() if seconds} == {"memory": 8, "launches": 1}
    short = step("%a = f32[] constant(1)", SMALL, **ON_A_GPU)
    assert (short.seconds, short.limit) == (3 + 1, "launches")


def test_a_copy_moves_its_bytes_faster():
    found = step(COPY, **ON_A_GPU)
    assert (found.seconds, found.launches) == (4 + 1, {"copies": 1})


def test_names_and_views_are_no_launches():
    lines = ["%b = f32[10,100] bitcast(%u)", "%t = (f32[10,100]) tuple(%b)"]
    assert not step(*lines, **ON_A_GPU).launches


@pytest.mark.parametrize(
    ("line", "launches", "moved"),
    [
        # Lines and columns: a kernel for each. The field has 4000 bytes, half of its spectrum 4200.
        ("%f = c64[25,21] fft(%r), fft_type=RFFT, fft_length={25,40}", 2, 2 * (4000 + 4200)),
        # One more divides the result, and one copies the spectrum beforehand.
        ("%f = f32[25,40] fft(%s), fft_type=IRFFT, fft_length={25,40}", 4, 2 * (4000 + 4200) + 2 * 4000 + 2 * 4200),
        ("%f = c64[25,21] fft(%s), fft_type=FFT, fft_length={21}", 1, 2 * 4200),
        ("%f = c64[25,21] fft(%s), fft_type=IFFT, fft_length={21}", 2, 2 * 4200 + 2 * 4200),
    ],
)
def test_transforms_are_several_passes(line, launches, moved):
    found = step("%r = f32[25,40] bitcast(%u)", "%s = c64[25,21] parameter(1)", line, **ON_A_GPU)
    assert found.launches == {"cuFFT": launches}
    assert found.seconds == pytest.approx(moved / 2e3 + launches)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("__cublas$gemm", "cuBLAS"),
        ("mosaic_gpu_v2", "Mosaic"),
        ("__gpu$xla.gpu.triton", "Triton"),
        ("my_kernel", "call of my_kernel"),
    ],
)
def test_calls_of_libraries_are_named(target, kind):
    found = step(f'%c = f32[1000] custom-call(%u), custom_call_target="{target}"', **ON_A_GPU)
    assert (found.launches, found.seconds) == ({kind: 1}, 4 + 1)


def test_room_that_is_asked_for_is_no_launch():
    assert not step('%c = f32[1000] custom-call(), custom_call_target="AllocateBuffer"', **ON_A_GPU).launches


LOOP = (
    "%body (u: f32[1000]) -> f32[1000] {{\n  %u = f32[1000] parameter(0)\n  ROOT %n = f32[1000] negate(%u)\n}}\n\n"
    "%condition (v: f32[1000]) -> pred[] {{\n  %v = f32[1000] parameter(0)\n  %z = f32[] constant(0)\n"
    "  ROOT %g = pred[] compare(%z, %z), direction=GT\n}}\n\n"
    "ENTRY %main (w: f32[1000]) -> f32[1000] {{\n  %w = f32[1000] parameter(0)\n"
    "  ROOT %l = f32[1000] while(%w), condition=%condition, body=%body{}\n}}"
)


def test_a_loop_of_known_length_asks_nothing():
    told = ', backend_config={"known_trip_count":{"n":"5"}}'
    found = Estimator(parse(LOOP.format(told)), GPU, Switch(1)).step(5)[0]
    assert (found.launches, found.seconds, found.unknown_loops) == ({"fusions": 1}, 8 + 1, 0)


def test_a_turn_of_a_loop_of_unknown_length_waits_for_an_answer():
    found = Estimator(parse(LOOP.format("")), GPU, Switch(1)).step(1)[0]
    # The body, its condition, and a copy to the host, the last two of the least time.
    assert found.launches == {"fusions": 2, "answers read by the host": 1}
    assert (found.seconds, found.unknown_loops) == (8 + 1 + 2 * (3 + 1), 1)
