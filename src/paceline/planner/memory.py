"""How big everything may be: weights, KV blocks and the arena within the memory that there is.

The one idea: the plan is arithmetic that is shown. Every size that was left to `auto` gets a reason, and a plan that does
not fit is refused with the sums.

    memory_utilization × available  ≥  weights + arena + num_blocks × bytes per block
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.backends.base import BLOCK_SIZE, KvDtype, kv_head_bytes
from paceline.cache.block_table import num_blocks_for
from paceline.errors import ModelError
from paceline.models.spec import AttentionSpec, ModelSpec
from paceline.models.weights import ModelWeights

MAX_AUTO_BLOCKS = 8192
"""Blocks that `auto` takes at most, 131,072 tokens: more helps few and fills a laptop's memory with old prefixes."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """What a model takes, in bytes."""

    weights_bytes: int
    arena_bytes: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The resolved sizes, and why."""

    num_blocks: int
    max_model_len: int
    notes: tuple[str, ...]


def kv_bytes_per_block(spec: ModelSpec, dtype: KvDtype) -> int:
    """Bytes of 16 tokens' keys and values over all layers: Σ KV heads × 16 × 2 × (head width × bytes of a number + a scale)."""
    return sum(layer.mixer.num_kv_heads * kv_head_bytes(dtype, layer.mixer.head_dim) for layer in spec.layers)


def weights_bytes(weights: ModelWeights) -> int:
    """Bytes of all matrices in their files' own types, within 3 % of what their packed copies take; tied ones count once."""
    matrices = {id(matrix): matrix for matrix in (weights.embedding, weights.head)}
    for layer in weights.layers:
        matrices |= {id(matrix): matrix for matrix in (layer.qkv, layer.o, layer.gate_up, layer.down)}
    return sum(part.data.nbytes for matrix in matrices.values() for part in matrix.parts)


def arena_bytes(spec: ModelSpec, max_tokens: int, max_rows: int) -> int:
    """An upper estimate of a step's activations: four buffers of the widest layer per token, in float32, and the logits."""
    widest = max(max(2 * layer.feed_forward.width, _qkv_width(layer.mixer)) for layer in spec.layers)
    return 4 * (4 * max(widest, spec.width) * max_tokens + spec.vocab_size * max_rows)


def _qkv_width(mixer: AttentionSpec) -> int:
    return (mixer.num_heads + 2 * mixer.num_kv_heads) * mixer.head_dim


def plan_memory(
    needs: MemoryNeeds, spec: ModelSpec, *, budget_bytes: int, max_num_seqs: int, max_model_len: int | None, num_blocks: int | None
) -> MemoryPlan:
    """Resolve the pool's size and the context within a budget. `max_model_len` and `num_blocks`: None is auto.

    Errors:  ModelError with the sums when the model, or the context asked for, does not fit
    """
    wanted_len = max_model_len or spec.max_positions
    room = budget_bytes - needs.weights_bytes - needs.arena_bytes
    fitting = room // needs.block_bytes if needs.block_bytes else max(MAX_AUTO_BLOCKS, num_blocks or 0)
    notes: list[str] = []
    if num_blocks is None:
        num_blocks, why = _auto_blocks(fitting, max_num_seqs, wanted_len)
        notes.append(f"num_blocks={num_blocks}: {why}")
    if num_blocks > max(fitting, 0) or num_blocks < 2:
        raise ModelError(f"The model does not fit this machine's memory: {_sums(needs, budget_bytes, max(2, num_blocks))}.")
    capacity = (num_blocks - 1) * BLOCK_SIZE
    if max_model_len is not None and max_model_len > capacity:
        sums = _sums(needs, budget_bytes, num_blocks)
        raise ModelError(f"`max_model_len` is {max_model_len}, but {num_blocks} KV blocks hold {capacity} tokens: {sums}.")
    resolved_len = min(wanted_len, capacity)
    if max_model_len is None:
        source = "the model's own context" if resolved_len == spec.max_positions else f"what {num_blocks} KV blocks hold"
        notes.append(f"max_model_len={resolved_len}: {source}")
    return MemoryPlan(num_blocks, resolved_len, tuple(notes))


def _auto_blocks(fitting: int, max_num_seqs: int, max_model_len: int) -> tuple[int, str]:
    """Enough for every sequence at full length, within a cap (at least one full context) and within memory."""
    per_seq = num_blocks_for(max_model_len)
    wanted = max_num_seqs * per_seq + 1
    cap = max(MAX_AUTO_BLOCKS, per_seq + 1)
    num_blocks = min(fitting, wanted, cap)
    if num_blocks == wanted:
        return num_blocks, f"{max_num_seqs} sequences of {max_model_len} tokens"
    if num_blocks == cap:
        return num_blocks, "the cap of `auto`"
    return num_blocks, "what memory_utilization leaves"


def _sums(needs: MemoryNeeds, budget_bytes: int, num_blocks: int) -> str:
    kv = num_blocks * needs.block_bytes
    return (
        f"weights {needs.weights_bytes / MIB:.0f} MiB + arena {needs.arena_bytes / MIB:.0f} MiB"
        f" + {num_blocks} KV blocks × {needs.block_bytes / MIB:.3f} MiB = {(needs.weights_bytes + needs.arena_bytes + kv) / MIB:.0f} MiB,"
        f" and memory_utilization allows {budget_bytes / MIB:.0f} MiB"
    )
