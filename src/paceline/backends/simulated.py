"""Backends without a model, whose output proves or scripts something.

`HashBackend`: the next token is a hash of every token of the context, read back *through the block table* from memory that
earlier steps wrote. A wrong block, a stale prefix or a lost copy changes the output, as it would with a real model.

`ScriptedBackend`: emits given token lists, so that "the model happened to say …" becomes exact.

Both keep one integer per slot instead of keys and values; both are for tests and simulations alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paceline.backends.base import BLOCK_SIZE, F32, I32, I64, U64, Draws, PoolShape, StepInput, StepOutput
from paceline.errors import RequestError

EMPTY = -1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


class TokenMemory:
    """The pool's memory, one (position, token) pair per slot, written and read as a model writes and reads keys and values."""

    def __init__(self, pool: PoolShape) -> None:
        self._tokens = np.full((pool.num_blocks, BLOCK_SIZE), EMPTY, np.int64)
        self._positions = np.full((pool.num_blocks, BLOCK_SIZE), EMPTY, np.int64)

    def write(self, step: StepInput) -> None:
        """Do the step's copies, then store its tokens in their slots."""
        for source, target in step.copies.tolist():
            self._tokens[target] = self._tokens[source]
            self._positions[target] = self._positions[source]
        lengths = np.diff(step.slice_starts)
        slice_of = np.repeat(np.arange(len(lengths)), lengths)
        blocks = step.block_tables[0, slice_of, step.positions // BLOCK_SIZE]
        self._tokens[blocks, step.positions % BLOCK_SIZE] = step.token_ids
        self._positions[blocks, step.positions % BLOCK_SIZE] = step.positions

    def block(self, block_id: int) -> tuple[I64, I64]:
        """A block's tokens and positions [16]."""
        return self._tokens[block_id], self._positions[block_id]

    def contexts(self, step: StepInput) -> list[tuple[I64, I64]]:
        """What each logits row sees: tokens and stored positions of its sequence up to the row [its position + 1]."""
        slices = np.searchsorted(step.slice_starts, step.row_indices, side="right") - 1
        contexts: list[tuple[I64, I64]] = []
        for slice_index, row_index in zip(slices.tolist(), step.row_indices.tolist(), strict=True):
            length = int(step.positions[row_index]) + 1
            blocks = step.block_tables[0, slice_index, : -(-length // BLOCK_SIZE)]
            contexts.append((self._tokens[blocks].ravel()[:length], self._positions[blocks].ravel()[:length]))
        return contexts


class HashBackend:
    """Next token = pick from logits that are a hash of the whole context as memory holds it."""

    def __init__(self, vocab_size: int, pool: PoolShape) -> None:
        self._vocab_size = vocab_size
        self._memory = TokenMemory(pool)
        self._weights = _mix(np.arange(1, pool.max_blocks_per_seq * BLOCK_SIZE + 1, dtype=np.uint64))
        self._columns = np.arange(vocab_size, dtype=np.uint64) * _GOLDEN

    @property
    def name(self) -> str:
        """See `Backend.name`."""
        return "hash"

    @property
    def numerics(self) -> str:
        """See `Backend.numerics`."""
        return "hash:1"

    @property
    def vocab_size(self) -> int:
        """See `Backend.vocab_size`."""
        return self._vocab_size

    @property
    def kv_bytes_per_block(self) -> int:
        """A token and a position per slot."""
        return BLOCK_SIZE * 16

    def forward(self, step: StepInput) -> StepOutput:
        """See `Backend.forward`."""
        self._memory.write(step)
        hashes = np.array([self._digest(*context) for context in self._memory.contexts(step)], np.uint64)
        logits = self.logits(hashes)
        return StepOutput(self.pick(logits, step.draws), logits if step.needs_logits else None)

    def term(self, token_id: int, position: int) -> int:
        """What one token adds to the hash of its context."""
        return (token_id * 1_000_003 + position + 1) * int(self._weights[position])

    def context_logits(self, terms: int) -> F32:
        """The logits after a context, from the sum of its tokens' terms alone: what a simulation's oracle picks from. Shapes: → [V]"""
        row: F32 = self.logits(np.array([terms % 2**64], np.uint64))[0]
        return row

    def stored(self, block_id: int) -> tuple[I64, I64]:
        """The tokens and positions that a block holds [16]."""
        return self._memory.block(block_id)

    def logits(self, hashes: U64) -> F32:
        """A row per context hash, each value in [0, 8)."""
        return _unit(hashes[:, None] + self._columns) * np.float32(8.0)

    def pick(self, logits: F32, draws: Draws) -> I32:
        """The argmax; above temperature 0 with noise that depends on seed, sequence index, position and token."""
        is_random = draws.temperature >= 1e-6
        if is_random.any():
            keys = _mix(draws.seeds + draws.seq_indices.astype(np.uint64) * _MIX_1 + draws.positions.astype(np.uint64) * _MIX_2)
            logits = logits + _unit(keys[:, None] ^ self._columns) * np.float32(8.0) * is_random[:, None]
        picks: I32 = logits.argmax(axis=1).astype(np.int32)
        return picks

    def close(self) -> None:
        """Nothing to give back."""

    def _digest(self, tokens: I64, positions: I64) -> np.uint64:
        mixed = (tokens * 1_000_003 + positions + 1).astype(np.uint64) * self._weights[: len(tokens)]
        return np.uint64(mixed.sum(dtype=np.uint64))


@dataclass(frozen=True, slots=True)
class Script:
    """Tokens to say after a prompt that contains `marker` (empty: after any prompt), then the end token."""

    tokens: tuple[int, ...]
    marker: tuple[int, ...] = ()


def load_scripts(path: Path) -> tuple[Script, ...]:
    """Read a script file: a JSON list of token lists, or of {"tokens": […], "prompt_contains_ids": […]}.

    Errors:  RequestError when the file does not say that
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return tuple(
            Script(tuple(map(int, entry["tokens"])), tuple(map(int, entry.get("prompt_contains_ids", ()))))
            if isinstance(entry, dict)
            else Script(tuple(map(int, entry)))
            for entry in entries
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RequestError(f"`{path}` is no script: {error!r}; expected a JSON list of token lists.", param="script") from error


class ScriptedBackend:
    """Says given token lists, whatever the sampling: a prompt's first script whose marker it contains, else the next unmarked one in turn.

    A sequence is known by its seed, its index and its context, so preemption and prefix hits change nothing. A context that is
    asked about and not known is a new prompt; the same prompt with the same seed again takes the next script.
    """

    def __init__(self, vocab_size: int, pool: PoolShape, scripts: Sequence[Script], eos_id: int) -> None:
        self._vocab_size = vocab_size
        self._memory = TokenMemory(pool)
        self._marked = [script for script in scripts if script.marker]
        self._unmarked = [script for script in scripts if not script.marker] or [Script(())]
        self._num_prompts = 0
        self._eos_id = eos_id
        self._said: dict[tuple[int, int, bytes], tuple[Script, int]] = {}

    @property
    def name(self) -> str:
        """See `Backend.name`."""
        return "scripted"

    @property
    def numerics(self) -> str:
        """See `Backend.numerics`."""
        return "scripted:1"

    @property
    def vocab_size(self) -> int:
        """See `Backend.vocab_size`."""
        return self._vocab_size

    @property
    def kv_bytes_per_block(self) -> int:
        """A token and a position per slot."""
        return BLOCK_SIZE * 16

    def forward(self, step: StepInput) -> StepOutput:
        """See `Backend.forward`; a scripted token's logit is 1000, all others are 0."""
        self._memory.write(step)
        seeds, seq_indices = step.draws.seeds.tolist(), step.draws.seq_indices.tolist()
        contexts = [tokens.tolist() for tokens, _ in self._memory.contexts(step)]
        picks = np.array([self._next(*row) for row in zip(seeds, seq_indices, contexts, strict=True)], np.int32)
        if not step.needs_logits:
            return StepOutput(picks, None)
        logits = np.zeros((len(picks), self._vocab_size), np.float32)
        logits[np.arange(len(picks)), picks] = 1000.0
        return StepOutput(picks, logits)

    def pick(self, logits: F32, draws: Draws) -> I32:
        """The argmax, whatever the draws."""
        picks: I32 = logits.argmax(axis=1).astype(np.int32)
        return picks

    def close(self) -> None:
        """Nothing to give back."""

    def _next(self, seed: int, seq_index: int, context: list[int]) -> int:
        key = (seed, seq_index, np.array(context, np.int32).tobytes())
        script, count = self._said.get(key, (None, 0))
        if script is None or count == 0:
            script = self._choose(context)
            self._said[key] = script, 0
        token_id = script.tokens[count] if count < len(script.tokens) else self._eos_id
        self._said[seed, seq_index, key[2] + np.int32(token_id).tobytes()] = script, count + 1
        return token_id

    def _choose(self, prompt: list[int]) -> Script:
        for script in self._marked:
            if _contains(prompt, script.marker):
                return script
        self._num_prompts += 1
        return self._unmarked[(self._num_prompts - 1) % len(self._unmarked)]


def _contains(tokens: list[int], marker: tuple[int, ...]) -> bool:
    size = len(marker)
    return any(tuple(tokens[start : start + size]) == marker for start in range(len(tokens) - size + 1))


def _mix(values: U64) -> U64:
    """The finaliser of splitmix64. Source: Steele et al. 2014, "Fast splittable pseudorandom number generators"."""
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))


def _unit(values: U64) -> F32:
    """Uniform in [0, 1) from the top 24 bits."""
    unit: F32 = (_mix(values) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return unit
