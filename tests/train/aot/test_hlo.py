"""Reading compiled programs: products, collectives and loops, on programs compiled here and on one written by hand."""

import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import lemur_ray
from lemur_ray.model.norm import rms_norm
from lemur_ray.train.aot.hlo import read
from lemur_ray.train.aot.origins import Origins

WRITTEN = """HloModule jit_step, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[]{:T(128)} parameter(0)
  %b = f32[]{:T(128)} parameter(1)
  ROOT %sum = f32[]{:T(128)} add(%a, %b)
}

%all-reduce-scatter.1 (input: bf16[64,32]) -> bf16[8,32] {
  %input = bf16[64,32]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %all-reduce.7 = bf16[64,32]{1,0:T(8,128)(2,1)} all-reduce(%input), replica_groups={{0,4,8,12,16,20,24,28},{1,5,9,13,17,21,25,29}}, to_apply=%add
}

%condition (state: (s32[], bf16[64,16])) -> pred[] {
  %ten = s32[]{:T(128)} constant(10)
  %state = (s32[]{:T(128)}, bf16[64,16]{1,0:T(8,128)(2,1)}) parameter(0)
  %counter = s32[]{:T(128)} get-tuple-element(%state), index=0
  ROOT %less = pred[]{:T(512)} compare(%counter, %ten), direction=LT
}

%body (state.1: (s32[], bf16[64,16])) -> (s32[], bf16[64,16]) {
  %state.1 = (s32[]{:T(128)}, bf16[64,16]{1,0:T(8,128)(2,1)}) parameter(0)
  %x = bf16[64,16]{1,0:T(8,128)(2,1)} get-tuple-element(%state.1), index=1
  %w = bf16[16,32]{1,0:T(8,128)(2,1)} constant({...})
  %convolution.3 = bf16[64,32]{1,0:T(8,128)(2,1)} convolution(%x, %w), dim_labels=bf_io->bf
  %scattered = bf16[8,32]{1,0:T(8,128)(2,1)} fusion(%convolution.3), kind=kCustom, calls=%all-reduce-scatter.1
  %gathered = bf16[64,32]{1,0:T(8,128)(2,1)} all-gather(%scattered), replica_groups=[4,8]<=[8,4]T(1,0), dimensions={0}
  %kernel.5 = (bf16[2,64,128]{2,1,0:T(8,128)(2,1)}, f32[2,64]{1,0:T(8,128)}) custom-call(%gathered), custom_call_target="tpu_custom_call"
  %counter.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  %one = s32[]{:T(128)} constant(1)
  %next = s32[]{:T(128)} add(%counter.1, %one)
  ROOT %out = (s32[]{:T(128)}, bf16[64,16]{1,0:T(8,128)(2,1)}) tuple(%next, %x)
}

ENTRY %main (p: (s32[], bf16[64,16])) -> (s32[], bf16[64,16]) {
  %p = (s32[]{:T(128)}, bf16[64,16]{1,0:T(8,128)(2,1)}) parameter(0)
  %x.1 = bf16[64,16]{1,0:T(8,128)(2,1)} get-tuple-element(%p), index=1
  %zero = s32[]{:T(128)} constant(0)
  %start = (s32[]{:T(128)}, bf16[64,16]{1,0:T(8,128)(2,1)}) tuple(%zero, %x.1)
  ROOT %while.1 = (s32[]{:T(128)}, /*index=1*/bf16[64,16]{1,0:T(8,128)(2,1)}) while(%start), condition=%condition, body=%body, metadata={op_name="jit(step)/jvp()/while" stack_frame_id=3}
}
"""  # noqa: E501


def test_what_a_loop_holds_counts_as_often_as_it_runs() -> None:
    program = read(WRITTEN, lambda name, shapes: 7.0 * shapes[0][1][1])
    assert program.product_flops == 10 * 2 * 64 * 32 * 16
    assert (program.kernel_flops, program.kernels) == (10 * 7.0 * 64, {"kernel": 10})
    (loop,) = program.loops
    assert (loop.trips, loop.origin) == (10, "jit(step)/jvp()/while")
    assert loop.carried == (("s32", ()), ("bf16", (64, 16)))


@pytest.mark.parametrize(
    ("change", "trips"),
    [
        (("constant(1)", "constant(2)"), 5),
        (("constant(1)", "constant(3)"), 4),
        (("%zero = s32[]{:T(128)} constant(0)", "%zero = s32[]{:T(128)} constant(4)"), 6),
        (("direction=LT", "direction=LE"), 11),
        (("direction=LT", "direction=NE"), 10),
        (("compare(%counter, %ten), direction=LT", "compare(%ten, %counter), direction=LE"), None),
        (("tuple(%zero, %x.1)", "tuple(%x.1, %x.1)"), None),
        (("add(%counter.1, %one)", "add(%counter.1, %counter.1)"), None),
        (("constant(1)", "constant(-1)"), None),
    ],
)
def test_a_loop_runs_from_its_start_by_its_step_to_its_limit(change: tuple[str, str], trips: int | None) -> None:
    assert WRITTEN.count(change[0]) == 1
    text = WRITTEN.replace(*change)
    if trips is not None:
        assert [loop.trips for loop in read(text).loops] == [trips]
        return
    with pytest.raises(ValueError, match=r"loop while\.1"):
        read(text)


def test_collectives_have_their_group_and_the_bytes_of_a_ring() -> None:
    scatter, gather = sorted(read(WRITTEN).collectives, key=lambda c: c.kind, reverse=True)
    whole = 64 * 32 * 2
    assert (scatter.kind, scatter.group, scatter.count) == ("reduce-scatter", tuple(range(0, 32, 4)), 10)
    assert scatter.sent_bytes == pytest.approx(10 * whole * 7 / 8)
    assert (gather.kind, gather.group, gather.count) == ("all-gather", tuple(range(0, 32, 4)), 10)
    assert gather.sent_bytes == pytest.approx(10 * whole * 7 / 8)


def test_products_of_a_program_compiled_here_are_counted_through_its_loops() -> None:
    def twice(x: jax.Array, weights: jax.Array) -> jax.Array:
        def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(jax.lax.dot(x, w, precision="highest")), None

        return jax.lax.scan(layer, x, weights)[0]

    shapes = jax.ShapeDtypeStruct((24, 16), jnp.float32), jax.ShapeDtypeStruct((5, 16, 16), jnp.float32)
    text = jax.jit(twice).lower(*shapes).compile().as_text()
    assert text is not None
    program = read(text)
    assert [loop.trips for loop in program.loops] == [5]
    assert program.product_flops == (5 * 2 * 24 * 16 * 16 if " dot(" in text else 0), "a library's kernel is opaque"


def entry(*lines: str) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f"%part (x: f32[8,16]) -> f32[8,4] {{\n  %x = f32[8,16] parameter(0)\n  %w = f32[16,4] constant({{...}})\n"
        f"  ROOT %d = f32[8,4] dot(%x, %w), lhs_contracting_dims={{1}}\n}}\n\nENTRY %main () -> f32[] {{\n{body}\n}}\n"
    )


PART = 2 * 8 * 4 * 16


@pytest.mark.parametrize(
    ("lines", "flops"),
    [
        (["%y = f32[8,4] call(%a), to_apply=%part"], PART),
        (["%y = f32[8,4] conditional(%p, %a, %a), branch_computations={%part, %part}"], 2 * PART),
        (["%y = f32[8,4] conditional(%p, %a, %a), true_computation=%part, false_computation=%part"], 2 * PART),
        (  # a batch of six products 8x10 by 10x2, as a spatial dimension
            ["%a = f32[6,8,10] parameter(0)", "%b = f32[6,10,2] parameter(1)",
             "%y = f32[6,8,2] convolution(%a, %b), window={size=6 stride=5 lhs_dilate=6}, dim_labels=0bf_0io->0bf"],
            6 * 2 * 8 * 10 * 2,
        ),
        (  # a real window: five results, three taps, the outer ones partly beside the data
            ["%a = f32[1,5,3] parameter(0)", "%b = f32[3,3,7] parameter(1)",
             "%y = f32[1,5,7] convolution(%a, %b), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f"],
            2 * 3 * 7 * (5 * 3 - 2),
        ),
    ],
)  # fmt: skip
def test_products_behind_calls_branches_and_windows_are_counted(lines: list[str], flops: int) -> None:
    assert read(entry(*lines)).product_flops == flops


@pytest.mark.parametrize(
    ("line", "group", "sent"),
    [
        ("(f32[8], bf16[16]) all-reduce-start(%a, %b), replica_groups={{0,1},{2,3}}", (0, 1), 2 * 64 / 2),
        ("((f32[8]), f32[2]) reduce-scatter-start(%a), replica_groups={{0,1,2,3}}", (0, 1, 2, 3), 3 * 8),
        ("(f32[2], f32[8]) all-gather-start(%a), replica_groups=[2,4]<=[2,2,2]T(1,0,2)", (0, 1, 4, 5), 32 * 3 / 4),
        ("f32[8] all-gather(%a), replica_groups=mesh['a'=2,'b'=4] {'a'}", (0, 4), 16),
        ("f32[8] all-gather(%a), replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}", (0, 1, 2, 3), 24),
        ("(f32[8], f32[8], u32[], u32[]) collective-permute-start(%a), source_target_pairs={{0,3},{3,0}}", (0, 3), 32),
        (
            '(f32[8], u32[], token[]) send(%a, %t), frontend_attributes={_xla_megascale_target="{1,2}x{0:7}",'
            '_xla_megascale_transfer_type="ALL_REDUCE"}',
            (0, 8),
            32,
        ),
    ],
)
def test_groups_and_bytes_of_every_way_to_write_a_collective(line: str, group: tuple[int, ...], sent: float) -> None:
    (found,) = read(entry(f"%y = {line}")).collectives
    assert (found.group, found.sent_bytes) == (group, sent)


START = "%y = (f32[2], f32[8]) all-gather-start(%a), replica_groups=[2,4]<=[8]"
DONE = "%z = f32[8] all-gather-done(%y)"


@pytest.mark.parametrize(
    ("lines", "overlapped"),
    [
        ([START, "%d = f32[8,4] fusion(%a), kind=kOutput, calls=%part", DONE], True),
        ([START, "%d = f32[8,4] call(%a), to_apply=%part", DONE], True),
        ([START, '%d = f32[8] custom-call(%a), custom_call_target="__cudnn$fmhaSoftmax"', DONE], True),
        ([START, "%d = f32[8] add(%a, %a)", DONE], False),
        ([START, DONE, "%d = f32[8,4] fusion(%a), kind=kOutput, calls=%part"], False),
        (["%y = f32[8] all-gather(%a), replica_groups=[2,4]<=[8]", "%d = f32[8,4] call(%a), to_apply=%part"], False),
    ],
)
def test_a_collective_is_overlapped_if_products_run_between_its_start_and_end(
    lines: list[str], overlapped: bool
) -> None:
    (found,) = read(entry(*lines)).collectives
    assert found.overlapped is overlapped


def part(name: str, *lines: str, channel: int = 7) -> str:
    """A fusion of the TPU compiler with a part of a collective."""
    attributes = f'channel_id={channel}, replica_groups=[2,4]<=[8], frontend_attributes={{chain_id="0"}}'
    gather = f"%g = f32[8] all-gather(%p), {attributes}"
    body = "\n".join(f"  {line}" for line in ("%p = f32[2] parameter(0)", gather, *lines))
    return f"%{name} (p: f32[2]) -> f32[8] {{\n{body}\n}}\n\n"


@pytest.mark.parametrize(("channel", "overlapped"), [(7, True), (8, False)])
def test_a_collective_in_a_chain_of_fusions_is_sent_once_beside_the_products_of_any_of_them(
    channel: int, overlapped: bool
) -> None:
    product = "%d = f32[8,4] dot(%p, %p), lhs_contracting_dims={1}"
    chain = (
        part("fused_computation.1", '%s = f32[8] custom-call(%g), custom_call_target="AsyncCollectiveStart"')
        + part("async_collective_fusion.2", "%p = f32[8,16] parameter(1)", product, channel=channel)
        + part("fused_computation.3", '%e = f32[8] custom-call(%g), custom_call_target="AsyncCollectiveDone"')
    )
    calls = [f"%y{n} = f32[8] fusion(%a), kind=kCustom, calls=%{name}" for n, name in enumerate(
        ("fused_computation.1", "async_collective_fusion.2", "fused_computation.3"))]  # fmt: skip
    (found,) = read(chain + entry(*calls)).collectives
    assert (found.count, found.sent_bytes, found.overlapped) == (1, 32 * 3 / 4, overlapped)


def test_a_pair_beside_a_part_of_a_chain_is_judged_by_what_runs_in_between() -> None:
    attributes = 'channel_id=7, replica_groups=[2,4]<=[8], frontend_attributes={chain_id="0"}'
    product = "%d = f32[8,4] fusion(%a), kind=kOutput, calls=%part"
    lines = [f"%g = f32[8] all-gather(%a), {attributes}", START, product, DONE]
    chain = part("async_collective_fusion.2", "%f = f32[8,4] dot(%p, %p), lhs_contracting_dims={1}")
    assert all(collective.overlapped for collective in read(chain + entry(*lines)).collectives)


TABLES = f"""HloModule jit_step

FileNames
1 "{Path(lemur_ray.__file__).parents[1]}/.venv/flax/module.py"
2 "{Path(lemur_ray.__file__).parent}/model/matmul.py"
3 "{Path(lemur_ray.__file__).parent}/model/llama.py"

FunctionNames
1 "apply"
2 "matmul"
3 "Block.<locals>.heads"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=7 end_line=7 column=1 end_column=2}}
2 {{file_name_id=2 function_name_id=2 line=8 end_line=8 column=1 end_column=2}}
3 {{file_name_id=3 function_name_id=3 line=90 end_line=91 column=1 end_column=2}}

StackFrames
1 {{file_location_id=3 parent_frame_id=1}}
2 {{file_location_id=2 parent_frame_id=2}}
3 {{file_location_id=1 parent_frame_id=1}}

"""
TRACED = 'metadata={op_name="jit(step)/transpose(jvp())/checkpoint/dot_general" stack_frame_id=2}'


@pytest.mark.parametrize(
    ("lines", "origin"),
    [
        (  # the line that called the product
            [f"%y = f32[8] all-reduce(%a), replica_groups={{{{0,1}}}}, {TRACED}"],
            "backward, model/llama.py:90 Block.heads, dot_general",
        ),
        (  # made by the compiler: what it takes was traced
            [f"%a = f32[8] negate(%p), {TRACED}", "%b = f32[8] bitcast(%a)",
             "%y = f32[8] all-reduce(%b), replica_groups={{0,1}}"],
            "backward, model/llama.py:90 Block.heads, dot_general",
        ),
        (  # a gather: who needs it comes before what it is made of
            [f"%a = f32[4] negate(%p), {TRACED.replace('dot_general', 'slice')}",
             "%y = f32[8] all-gather(%a), replica_groups={{0,1}}", "%z = f32[8] bitcast(%y)",
             f"%b = f32[8] negate(%z), {TRACED}"],
            "backward, model/llama.py:90 Block.heads, dot_general",
        ),
        (  # not of the project
            ['%y = f32[8] all-reduce(%a), replica_groups={{0,1}}, metadata={op_name="jit(f)/psum" stack_frame_id=3}'],
            "psum",
        ),
        (
            ['%y = f32[8] all-reduce(%a), replica_groups={{0,1}}, metadata={op_name="a/rematted_computation/transpose('
             'jvp())/mul"}'],
            "recomputed, mul",
        ),
        (["%y = f32[8] all-reduce(%a), replica_groups={{0,1}}"], ""),
    ],
)  # fmt: skip
def test_a_collective_is_named_after_the_line_that_asked_for_it(lines: list[str], origin: str) -> None:
    (found,) = read(TABLES + entry(*lines)).collectives
    assert (found.origin, found.shape) == (origin, (8,))


def test_a_program_compiled_here_knows_the_lines_of_the_project() -> None:
    own = float(
        zlib.crc32(str(Path(__file__).resolve()).encode())
    )  # or the program of another checkout may lie in a cache that both use
    text = jax.jit(lambda x: own * rms_norm(x, x, 1e-5)).lower(jnp.ones(8)).compile().as_text()
    assert text is not None
    assert any(line.startswith("model/norm.py:") for line in Origins.of(text).lines.values())


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(ValueError, match="no ENTRY computation"):
        read("a text")
    dynamic = WRITTEN.replace("compare(%counter, %ten)", "compare(%counter, %counter)")
    with pytest.raises(ValueError, match="start, step or limit of its counter is not a constant"):
        read(dynamic)
