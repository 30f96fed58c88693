"""Mutations of scheduler, cache, sampling and verification, each a bug that somebody could write.

A planted bug replaces one function for as long as its `MonkeyPatch` lives; the simulation must notice every one of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import pytest

from paceline.backends.base import BLOCK_SIZE, StepInput
from paceline.cache.block_pool import BlockPool
from paceline.cache.block_table import BlockTable
from paceline.cache.eviction import FirstInFirstOut, LeastRecentlyUsed
from paceline.cache.prefix_cache import PrefixCache, PrefixChain
from paceline.cache.value import ValuePolicy
from paceline.engine import assemble, core, step
from paceline.engine.messages import Tokens
from paceline.engine.plan import Slice, StepPlan, Verdict
from paceline.engine.scheduler import Scheduler
from paceline.engine.sequence import Ending, State
from paceline.engine.sequence import Sequence as Seq
from paceline.sampling import sampler
from paceline.sampling.history import TokenHistory
from paceline.sampling.processors import PROCESSORS
from paceline.speculative.verify import num_accepted

Plant = Callable[[pytest.MonkeyPatch], None]


def a_shared_block_is_freed_by_its_first_owner(patch: pytest.MonkeyPatch) -> None:
    release = BlockPool.release

    def broken(pool: BlockPool, block_id: int) -> None:
        pool._ref_counts[block_id] = min(1, pool._ref_counts[block_id])
        release(pool, block_id)

    patch.setattr(BlockPool, "release", broken)


def a_table_forgets_its_last_block(patch: pytest.MonkeyPatch) -> None:
    release = BlockTable.release

    def broken(table: BlockTable) -> None:
        table.block_ids = table.block_ids[:-1]
        release(table)

    patch.setattr(BlockTable, "release", broken)


def a_replaced_block_is_never_given_back(patch: pytest.MonkeyPatch) -> None:
    def broken(table: BlockTable, block_index: int, block_id: int) -> None:
        table._pool.share(block_id)
        table.block_ids[block_index] = block_id

    patch.setattr(BlockTable, "replace", broken)


def a_hit_on_an_idle_block_leaves_it_evictable(patch: pytest.MonkeyPatch) -> None:
    for policy in (LeastRecentlyUsed, FirstInFirstOut, ValuePolicy):
        patch.setattr(policy, "discard", lambda policy, block_id: None)


def an_evicted_block_can_still_be_found(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrefixCache, "_forget", lambda cache, block_id: None)


def a_parent_is_evicted_before_its_child(patch: pytest.MonkeyPatch) -> None:
    release = BlockPool.release

    def broken(pool: BlockPool, block_id: int) -> None:
        children, pool._num_children[block_id] = pool._num_children[block_id], 0
        release(pool, block_id)
        pool._num_children[block_id] = children

    patch.setattr(BlockPool, "release", broken)


def a_full_prompt_is_found_whole(patch: pytest.MonkeyPatch) -> None:
    find = PrefixCache.find
    patch.setattr(PrefixCache, "find", lambda cache, chain, tokens: find(cache, chain, [*tokens, 0]))


def a_block_enters_the_cache_before_it_is_full(patch: pytest.MonkeyPatch) -> None:
    register = PrefixCache.register

    def broken(cache: PrefixCache, table: BlockTable, chain: PrefixChain, tokens: Sequence[int], num_computed: int) -> None:
        register(cache, table, chain, tokens, min(num_computed + 1, len(tokens), len(table) * BLOCK_SIZE))

    patch.setattr(PrefixCache, "register", broken)


def a_digest_ignores_what_came_before(patch: pytest.MonkeyPatch) -> None:
    catch_up = PrefixChain.catch_up
    find = PrefixCache.find

    def digests(chain: PrefixChain, tokens: Sequence[int], num_blocks: int) -> None:
        catch_up(chain, tokens, num_blocks)
        chain.digests = [blake2b(packed, digest_size=16).digest() for packed in chain.packed]

    def unverified(cache: PrefixCache, chain: PrefixChain, tokens: Sequence[int]) -> list[int]:
        found = find(cache, chain, tokens)
        for digest in chain.digests[len(found) : (len(tokens) - 1) // BLOCK_SIZE]:
            if digest not in cache._entries:
                break
            found.append(cache._entries[digest].block_id)
        return found

    patch.setattr(PrefixChain, "catch_up", digests)
    patch.setattr(PrefixCache, "find", unverified)


def a_salt_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(core, "root_digest", lambda model_digest, numerics, salt: b"same for all")


def rejected_drafts_stay_computed(patch: pytest.MonkeyPatch) -> None:
    commit = Scheduler.commit

    def broken(self: Scheduler, plan: StepPlan, verdicts: list[Verdict], now: float) -> Any:
        ends = [(piece.sequence, piece.end) for piece in plan.slices]
        events = commit(self, plan, verdicts, now)
        for seq, end in ends:
            if seq.state is State.RUNNING:
                seq.num_computed = end
        return events

    patch.setattr(Scheduler, "commit", broken)


def every_draft_is_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step, "num_accepted", lambda draft, picks: len(draft))


def one_accepted_draft_too_many(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step, "num_accepted", lambda draft, picks: min(num_accepted(draft, picks) + 1, len(draft)))


def tokens_follow_the_end(patch: pytest.MonkeyPatch) -> None:
    def broken(self: Scheduler, seq: Seq, verdict: Verdict | None) -> Ending | None:
        if verdict is None:
            return None
        seq.draft = []
        seq.token_ids += verdict.picks
        endings = [seq.ends_with(token, seq.num_generated) for token in verdict.picks]
        self._events.append(Tokens(seq.request.id, seq.index, verdict.picks, verdict.logprobs))
        return next((ending for ending in endings if ending is not None), None)

    patch.setattr(Scheduler, "_gain", broken)


def a_preempted_sequence_forgets_its_output(patch: pytest.MonkeyPatch) -> None:
    preempt = Scheduler._preempt

    def broken(self: Scheduler, seq: Seq, plan: StepPlan, now: float) -> None:
        preempt(self, seq, plan, now)
        del seq.token_ids[seq.num_prompt :]

    patch.setattr(Scheduler, "_preempt", broken)


def a_preempted_sequence_thinks_it_is_computed(patch: pytest.MonkeyPatch) -> None:
    start = Scheduler._start

    def broken(self: Scheduler, seq: Seq, hits: list[int], now: float) -> None:
        lost = seq.num_lost
        start(self, seq, hits, now)
        seq.num_computed = max(seq.num_computed, lost)

    patch.setattr(Scheduler, "_start", broken)


def a_preempted_sequence_stays_in_the_plan(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StepPlan, "drop", lambda plan, seq: None)


def the_wrong_sequence_is_preempted(patch: pytest.MonkeyPatch) -> None:
    preempt = Scheduler._preempt
    patch.setattr(Scheduler, "_preempt", lambda self, seq, plan, now: preempt(self, self._running[0], plan, now))


def the_queue_is_a_stack(patch: pytest.MonkeyPatch) -> None:
    admit = Scheduler._admit

    def broken(self: Scheduler, seq: Seq, plan: StepPlan, now: float) -> bool:
        self._waiting.reverse()
        is_admitted = admit(self, self._waiting[0], plan, now)
        self._waiting.sort(key=lambda other: other.key)
        return is_admitted

    patch.setattr(Scheduler, "_admit", broken)


def deadlines_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scheduler, "_expire", lambda self, now: None)


def an_abort_stops_only_the_first_sequence(patch: pytest.MonkeyPatch) -> None:
    def broken(self: Scheduler, request_id: str, now: float, reason: Any = "abort", message: str = "") -> None:
        for seq in self._requests.get(request_id, [])[:1]:
            self._finish(seq, Ending(reason), now, message)

    patch.setattr(Scheduler, "abort", broken)


def held_sequences_are_never_queued(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scheduler, "_queue_held", lambda self, request_id: None)


def the_budget_bounds_slices_not_steps(patch: pytest.MonkeyPatch) -> None:
    extend = Scheduler._extend

    def broken(self: Scheduler, seq: Seq, plan: StepPlan, now: float) -> None:
        planned, plan.num_tokens = plan.num_tokens, 0
        extend(self, seq, plan, now)
        plan.num_tokens += planned

    patch.setattr(Scheduler, "_extend", broken)


def a_slice_before_the_last_token_is_picked_from(patch: pytest.MonkeyPatch) -> None:
    add = StepPlan.add

    def broken(plan: StepPlan, seq: Seq, num_new: int) -> None:
        add(plan, seq, num_new)
        plan.slices[-1].num_rows = max(1, plan.slices[-1].num_rows)

    patch.setattr(StepPlan, "add", broken)


def randomness_depends_on_the_slice(patch: pytest.MonkeyPatch) -> None:
    draws = assemble._draws
    patch.setattr(assemble, "_draws", lambda settings, positions: draws(settings, list(range(len(positions)))))


def a_stale_block_table_is_read(patch: pytest.MonkeyPatch) -> None:
    def broken(plan: StepPlan) -> Any:
        tables = block_tables(plan)
        tables[0, :, 1:] = tables[0, :, :1]
        return tables

    block_tables = assemble._block_tables
    patch.setattr(assemble, "_block_tables", broken)


def drafts_are_not_sent(patch: pytest.MonkeyPatch) -> None:
    def broken(piece: Slice) -> list[int]:
        tokens = piece.sequence.token_ids[piece.start : piece.end]
        return tokens + [tokens[-1]] * (piece.num_new - len(tokens))

    patch.setattr(assemble, "slice_tokens", broken)


def penalties_count_a_token_once(patch: pytest.MonkeyPatch) -> None:
    catch_up = TokenHistory.catch_up

    def broken(history: TokenHistory, tokens: Sequence[int]) -> None:
        catch_up(history, tokens)
        history._counts[:] = history._counts.clip(max=1)

    patch.setattr(TokenHistory, "catch_up", broken)


def penalties_forget_drafted_tokens(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TokenHistory, "with_drafted", lambda history, drafted: history)


def min_tokens_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sampler, "PROCESSORS", PROCESSORS[1:])


def positions_begin_at_the_slice(patch: pytest.MonkeyPatch) -> None:
    build = assemble.assemble

    def broken(plan: StepPlan) -> StepInput:
        built = build(plan)
        if len(plan.slices) == 1 and plan.slices[0].start % BLOCK_SIZE == 0:
            built.positions[:] = range(len(built.positions))
        return built

    patch.setattr(step, "assemble", broken)


def blocks_are_handed_out_twice(patch: pytest.MonkeyPatch) -> None:
    grow = BlockTable.grow

    def broken(table: BlockTable, num_tokens: int) -> None:
        grow(table, num_tokens)
        if len(table.block_ids) > 2:
            table.block_ids = array("i", [*table.block_ids[:-1], table.block_ids[-2]])

    patch.setattr(BlockTable, "grow", broken)


PLANTED_BUGS: tuple[Plant, ...] = (
    a_shared_block_is_freed_by_its_first_owner,
    a_table_forgets_its_last_block,
    a_replaced_block_is_never_given_back,
    a_hit_on_an_idle_block_leaves_it_evictable,
    an_evicted_block_can_still_be_found,
    a_parent_is_evicted_before_its_child,
    a_full_prompt_is_found_whole,
    a_block_enters_the_cache_before_it_is_full,
    a_digest_ignores_what_came_before,
    a_salt_is_ignored,
    rejected_drafts_stay_computed,
    every_draft_is_accepted,
    one_accepted_draft_too_many,
    tokens_follow_the_end,
    a_preempted_sequence_forgets_its_output,
    a_preempted_sequence_thinks_it_is_computed,
    a_preempted_sequence_stays_in_the_plan,
    the_wrong_sequence_is_preempted,
    the_queue_is_a_stack,
    deadlines_are_ignored,
    an_abort_stops_only_the_first_sequence,
    held_sequences_are_never_queued,
    the_budget_bounds_slices_not_steps,
    a_slice_before_the_last_token_is_picked_from,
    randomness_depends_on_the_slice,
    a_stale_block_table_is_read,
    drafts_are_not_sent,
    penalties_count_a_token_once,
    penalties_forget_drafted_tokens,
    min_tokens_is_ignored,
    positions_begin_at_the_slice,
    blocks_are_handed_out_twice,
)
