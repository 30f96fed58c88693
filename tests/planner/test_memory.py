"""What `auto` resolves to, and what is refused, with the sums."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.backends.base import KvDtype
from paceline.backends.native.arena import place
from paceline.backends.native.lowering import packed_bytes
from paceline.backends.native.recorder import record
from paceline.errors import ModelError
from paceline.formats.open import open_checkpoint
from paceline.formats.types import TensorType
from paceline.models.load import Model, load_model
from paceline.models.spec import Activation, AttentionSpec, DenseSpec, LayerSpec, ModelSpec, RopeSpec
from paceline.planner.memory import (
    MAX_AUTO_BLOCKS,
    MIB,
    MemoryNeeds,
    MemoryPlan,
    arena_bytes,
    kv_bytes_per_block,
    plan_memory,
    weights_bytes,
)
from tests.generators.tiny_models import tiny_gguf

KV_DTYPES: tuple[KvDtype, ...] = ("int16", "int8")
LAYER = LayerSpec(AttentionSpec(9, 3, 64, RopeSpec(64, 1e5), 0.125), DenseSpec(1536, Activation.SILU))
SPEC = ModelSpec("llama", 49152, 576, (LAYER,) * 30, 1e-5, max_positions=8192, tied_head=True)
NEEDS = MemoryNeeds(weights_bytes=100 * MIB, arena_bytes=20 * MIB, block_bytes=MIB)


def planned(budget_mib: int, *, max_num_seqs: int = 64, max_model_len: int | None = None, num_blocks: int | None = None) -> MemoryPlan:
    """A plan within so many MiB."""
    return plan_memory(
        NEEDS, SPEC, budget_bytes=budget_mib * MIB, max_num_seqs=max_num_seqs, max_model_len=max_model_len, num_blocks=num_blocks
    )


def test_a_block_holds_keys_and_values_of_every_layer() -> None:
    assert kv_bytes_per_block(SPEC, "int16") == 2 * 16 * 30 * 3 * (64 * 2 + 4)
    assert kv_bytes_per_block(SPEC, "int8") == 2 * 16 * 30 * 3 * (64 + 4)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3"])
def test_blocks_and_arena_are_planned_as_the_native_core_makes_them(tmp_path: Path, family: str) -> None:
    check_blocks_and_arena(load_model(open_checkpoint(tiny_gguf(tmp_path / "tiny.gguf", family, tensor_type=TensorType.Q4_1))))


def test_the_default_model_takes_what_is_planned_for_it(smollm2_path: Path) -> None:
    model = load_model(open_checkpoint(smollm2_path))
    check_blocks_and_arena(model)
    matrices = {instruction.matrix for instruction in record(model.spec, model.weights).instructions if instruction.matrix is not None}
    packed = sum(packed_bytes(part) for matrix in matrices for part in matrix.parts)
    assert weights_bytes(model.weights) == pytest.approx(packed, rel=0.03)


def check_blocks_and_arena(model: Model) -> None:
    """Compare the plan's arithmetic with the recorded program and its placement."""
    program = record(model.spec, model.weights)
    for dtype in KV_DTYPES:
        assert kv_bytes_per_block(model.spec, dtype) == record(model.spec, model.weights, dtype).kv_block_bytes
    for max_tokens, max_rows in ((256, 64), (8192, 64), (1, 1)):
        assert place(program, max_tokens, max_rows).arena_bytes <= arena_bytes(model.spec, max_tokens, max_rows)


def test_auto_takes_the_cap_where_memory_allows() -> None:
    plan = planned(100_000)
    assert (plan.num_blocks, plan.max_model_len) == (MAX_AUTO_BLOCKS, 8192)
    assert any("the cap" in note for note in plan.notes)
    assert any("own context" in note for note in plan.notes)


def test_auto_takes_no_more_than_the_sequences_can_use() -> None:
    assert planned(100_000, max_num_seqs=2, max_model_len=160).num_blocks == 2 * 10 + 1


def test_auto_takes_what_memory_leaves_and_shortens_the_context_to_it() -> None:
    plan = planned(220)
    assert (plan.num_blocks, plan.max_model_len) == (100, 99 * 16)
    assert any("memory_utilization leaves" in note for note in plan.notes)
    assert any("100 KV blocks hold" in note for note in plan.notes)


@pytest.mark.parametrize("num_blocks", [None, 2, 500], ids=["auto", "two", "many"])
def test_what_does_not_fit_is_refused_with_the_sums(num_blocks: int | None) -> None:
    budget_mib = 121 if num_blocks != 500 else 200
    with pytest.raises(ModelError, match=r"weights 100 MiB \+ arena 20 MiB \+ \d+ KV blocks"):
        planned(budget_mib, num_blocks=num_blocks)


def test_a_context_that_the_blocks_cannot_hold_is_refused() -> None:
    with pytest.raises(ModelError, match="10 KV blocks hold 144 tokens"):
        planned(1000, max_model_len=160, num_blocks=10)


def test_what_was_given_is_taken_and_gets_no_note() -> None:
    plan = planned(1000, max_model_len=144, num_blocks=10)
    assert (plan.num_blocks, plan.max_model_len, plan.notes) == (10, 144, ())
