"""One sequence of tokens that the engine extends: the mutable half of a request, owned by the loop.

The one idea: a sequence has known tokens (prompt, accepted, drafted) and `num_computed`; all work is catching up.

    token_ids  [ prompt …………………… | accepted ……… ]  draft [ guessed … ]
    computed   [ ………………………………………………… ]▲
                                  num_computed: the next slice starts here
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from paceline.cache.block_table import BlockTable
from paceline.cache.prefix_cache import PrefixChain
from paceline.engine.request import FinishReason, Request
from paceline.observe.timeline import Timeline
from paceline.sampling.sampler import SampledRow, needs_logits

U64_MASK = 2**64 - 1


class Ending(NamedTuple):
    """Why a token is the last one. `stop_reason`: the stop string or token id, None for the model's own end."""

    reason: FinishReason
    stop_reason: str | int | None = None


EndCheck = Callable[[int, int], Ending | None]
"""Given a new token and how many were generated with it, says whether it is the last."""


class State(Enum):
    """Where a sequence is. Held: not queued yet, waits for the first sequence of its request to compute the prompt."""

    HELD = "held"
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class DrawSettings(NamedTuple):
    """A sequence's constant columns of `Draws`, in its order."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    seq_index: int


class Sequence:
    """Tokens, progress and blocks of one sequence. Only the scheduler changes it."""

    __slots__ = (
        "blocks",
        "chain",
        "draft",
        "draw_settings",
        "ends_with",
        "index",
        "key",
        "max_num_tokens",
        "needs_logits",
        "num_computed",
        "num_lost",
        "num_prompt",
        "order",
        "request",
        "sampled_row",
        "state",
        "timeline",
        "token_ids",
    )

    def __init__(self, request: Request, index: int, order: int, chain: PrefixChain, ends_with: EndCheck) -> None:
        params = request.params
        assert params.seed is not None, "the front door resolves seed"
        assert params.max_tokens is not None, "the front door resolves max_tokens"
        self.request = request
        self.index = index
        self.order = order
        """Arrival number, unique in the engine."""
        self.key: tuple[int, ...] = ()
        """The policy's sort key: smaller runs sooner."""
        self.state = State.HELD
        self.num_prompt = len(request.prompt_ids)
        self.max_num_tokens = self.num_prompt + params.max_tokens
        self.token_ids = list(request.prompt_ids)
        self.draft: list[int] = []
        self.num_computed = 0
        self.num_lost = 0
        """Tokens that were computed when the sequence was preempted."""
        self.blocks: BlockTable | None = None
        self.chain = chain
        self.ends_with = ends_with
        self.timeline = Timeline(request.arrived)
        self.needs_logits = needs_logits(params)
        self.sampled_row = SampledRow(params, request.eos_ids, self.num_prompt) if self.needs_logits else None
        self.draw_settings = DrawSettings(
            params.temperature, max(0, params.top_k), params.top_p, params.min_p, params.seed & U64_MASK, index
        )

    @property
    def num_tokens(self) -> int:
        """Known tokens, drafted ones included: what `num_computed` catches up to."""
        return len(self.token_ids) + len(self.draft)

    @property
    def num_generated(self) -> int:
        """Accepted tokens after the prompt."""
        return len(self.token_ids) - self.num_prompt

    @property
    def is_decoding(self) -> bool:
        """Whether only the newest accepted token (and drafts) are left to compute."""
        return self.num_computed == len(self.token_ids) - 1 and self.num_computed >= self.num_prompt

    def propose(self, draft: list[int]) -> None:
        """Set drafted tokens to verify in the next step; cut to what the sequence may still gain before its last token."""
        self.draft = draft[: max(0, self.max_num_tokens - len(self.token_ids) - 1)]
