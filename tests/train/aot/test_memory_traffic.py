"""Bytes that a program moves in a device's memory, on a loop written by hand and on programs compiled here."""

import re

import jax
import jax.numpy as jnp
import pytest

from lemur_ray.train.aot.memory_traffic import memory_bytes

LAYERS = """HloModule step

%layer (w: bf16[10,64,32], n: s32[], x: bf16[8,64]) -> bf16[8,32] {
  %w = bf16[10,64,32]{2,1,0:T(8,128)(2,1)} parameter(0)
  %n = s32[]{:T(128)} parameter(1)
  %x = bf16[8,64]{1,0:T(8,128)(2,1)} parameter(2)
  %zero.1 = s32[]{:T(128)} constant(0)
  %slice = bf16[1,64,32]{2,1,0:T(8,128)(2,1)} dynamic-slice(%w, %n, %zero.1, %zero.1), dynamic_slice_sizes={1,64,32}
  %matrix = bf16[64,32]{1,0:T(8,128)(2,1)} bitcast(%slice)
  ROOT %product = bf16[8,32]{1,0:T(8,128)(2,1)} dot(%x, %matrix), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (state: (s32[], bf16[10,64,32], bf16[8,64], bf16[10,8,32])) -> (s32[], bf16[10,64,32], bf16[8,64], bf16[10,8,32]) {
  %state = (s32[]{:T(128)}, bf16[10,64,32]{2,1,0}, bf16[8,64]{1,0}, bf16[10,8,32]{2,1,0}) parameter(0)
  %counter = s32[]{:T(128)S(6)} get-tuple-element(%state), index=0
  %weights = bf16[10,64,32]{2,1,0} get-tuple-element(%state), index=1
  %input = bf16[8,64]{1,0} get-tuple-element(%state), index=2
  %pool = bf16[10,8,32]{2,1,0} get-tuple-element(%state), index=3
  %one = s32[]{:T(128)S(6)} constant(1)
  %next = s32[]{:T(128)S(6)} add(%counter, %one)
  %output = bf16[8,32]{1,0:T(8,128)(2,1)S(1)} fusion(%weights, %counter, %input), kind=kOutput, calls=%layer
  %update = bf16[1,8,32]{2,1,0:T(8,128)(2,1)S(1)} bitcast(%output)
  %written = bf16[10,8,32]{2,1,0} dynamic-update-slice(%pool, %update, %counter, %one, %one)
  ROOT %out = (s32[]{:T(128)}, bf16[10,64,32]{2,1,0}, bf16[8,64]{1,0}, bf16[10,8,32]{2,1,0}) tuple(%next, %weights, %input, %written)
}

%condition (state.1: (s32[], bf16[10,64,32], bf16[8,64], bf16[10,8,32])) -> pred[] {
  %state.1 = (s32[]{:T(128)}, bf16[10,64,32]{2,1,0}, bf16[8,64]{1,0}, bf16[10,8,32]{2,1,0}) parameter(0)
  %counter.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  %ten = s32[]{:T(128)} constant(10)
  ROOT %less = pred[]{:T(512)} compare(%counter.1, %ten), direction=LT
}

ENTRY %main (p: (s32[], bf16[10,64,32], bf16[8,64], bf16[10,8,32])) -> (s32[], bf16[10,64,32], bf16[8,64], bf16[10,8,32]) {
  %p = (s32[]{:T(128)}, bf16[10,64,32]{2,1,0}, bf16[8,64]{1,0}, bf16[10,8,32]{2,1,0}) parameter(0)
  ROOT %loop = (s32[]{:T(128)}, bf16[10,64,32]{2,1,0}, bf16[8,64]{1,0}, bf16[10,8,32]{2,1,0}) while(%p), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"10"}}
}
"""  # noqa: E501
MATRIX, INPUT, OUTPUT = 64 * 32 * 2, 8 * 64 * 2, 8 * 32 * 2


def test_a_layer_reads_its_own_weights_and_writes_its_own_part_of_the_pool() -> None:
    assert memory_bytes(LAYERS) == 10 * (MATRIX + INPUT + OUTPUT)


def test_weights_that_are_copied_out_of_the_stack_are_written_as_well() -> None:
    copied = re.sub(r"%output = \S+", "%output = bf16[64,32]{1,0}", LAYERS)
    copied = re.sub(r"%product = \S+ dot.*", "%product = bf16[64,32]{1,0} copy(%matrix)", copied)
    assert memory_bytes(copied) == 10 * (2 * MATRIX + OUTPUT)


def test_a_stack_whose_layout_changes_within_a_fusion_is_read_by_the_slice() -> None:
    """As the compiler for TPU does with stacks of int8."""
    turned = """%turn (stack: bf16[10,64,32]) -> bf16[10,64,32] {
  %stack = bf16[10,64,32]{2,1,0} parameter(0)
  ROOT %copy = bf16[10,64,32]{2,1,0:T(32,128)} copy(%stack)
}

%layer ("""
    within = (
        "%view = bf16[10,64,32]{2,1,0} fusion(%w), output_to_operand_aliasing={{}: (0, {})}, calls=%turn\n  %slice ="
    )
    hlo = (
        LAYERS.replace("%layer (", turned)
        .replace("%slice =", within)
        .replace("dynamic-slice(%w", "dynamic-slice(%view")
    )
    assert memory_bytes(hlo) == memory_bytes(LAYERS)


def test_a_product_that_is_compiled_here_reads_its_operands_and_writes_its_result() -> None:
    compiled = jax.jit(lambda x, w: x @ w).lower(jnp.ones((8, 64)), jnp.ones((64, 32))).compile()
    assert memory_bytes(compiled.as_text()) >= 4 * (8 * 64 + 64 * 32 + 8 * 32)


def test_any_other_text_is_refused() -> None:
    with pytest.raises(ValueError, match="no HLO text"):
        memory_bytes("fn main() {}")
