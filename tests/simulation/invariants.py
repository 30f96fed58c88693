"""What must hold after every step, whatever happened."""

from __future__ import annotations

from collections import Counter

import numpy as np

from paceline.backends.simulated import HashBackend
from paceline.cache.block_pool import BlockPool
from paceline.cache.prefix_cache import PrefixCache
from paceline.engine.plan import StepPlan
from paceline.engine.scheduler import Scheduler
from paceline.engine.sequence import State
from tests.simulation.scenario import Scenario


class Violation(AssertionError):
    """An invariant that does not hold."""


def require(condition: bool, claim: str) -> None:
    """Raise `Violation` unless the claim holds."""
    if not condition:
        raise Violation(claim)


def check_blocks(scheduler: Scheduler, pool: BlockPool) -> None:
    """Every block has exactly the owners it counts; free + idle + used are all."""
    tables = [seq.blocks.block_ids for seq in scheduler.running if seq.blocks is not None]
    owners = Counter(block_id for table in tables for block_id in table)
    require(0 not in owners, "a table holds no null block")
    require(all(len(set(table)) == len(table) for table in tables), "a table holds no block twice")
    cached = {block_id for block_id, is_cached in enumerate(pool._is_cached) if is_cached}
    idle = cached - owners.keys()
    free = set(pool._free)
    require(len(free) == len(pool._free), "a block is free once")
    require(free == set(range(1, pool.num_blocks)) - owners.keys() - cached, "a block is free when nobody owns or finds it")
    require(pool._ref_counts == [owners[block_id] for block_id in range(pool.num_blocks)], "reference counts are the numbers of owners")
    children = Counter(pool._parents[block_id] for block_id in cached)
    require(pool._num_children == [children[block_id] for block_id in range(pool.num_blocks)], "children are counted")
    parents = {pool._parents[block_id] for block_id in cached & owners.keys()} - {0}
    require(parents <= owners.keys(), "whoever owns a child owns its parent")
    require(len(pool._policy) == sum(not children[block_id] for block_id in idle), "idle leaves, and they alone, may be evicted")
    require((pool.num_idle, pool.num_used) == (len(idle), len(owners)), "idle and used blocks are counted")
    require(len(free) + len(idle) + len(owners) == pool.num_blocks - 1, "free, idle and used blocks are all blocks")


def check_cache(cache: PrefixCache, pool: BlockPool, backend: HashBackend) -> None:
    """Every entry's block really holds the tokens that its digest names."""
    require(len(cache) == sum(map(pool.is_cached, range(pool.num_blocks))), "every cached block has one entry")
    for entry in cache._entries.values():
        tokens, positions = backend.stored(entry.block_id)
        depth, parent = 0, entry.parent
        while parent:
            depth, parent = depth + 1, pool.parent(parent)
        require(tokens.astype("<i4").tobytes() == entry.packed, "a cached block holds the tokens it is found by")
        require(bool((positions == np.arange(depth * 16, depth * 16 + 16)).all()), "a cached block holds its prefix's positions")


def check_plan(plan: StepPlan, scheduler: Scheduler, scenario: Scenario, now: float) -> None:
    """The plan keeps the budget, the order and everybody's deadline."""
    require(plan.num_tokens == sum(piece.num_new for piece in plan.slices), "planned tokens are counted")
    require(plan.num_tokens <= scenario.max_num_batched_tokens, "a step keeps its token budget")
    require(len(scheduler.running) <= scenario.max_num_seqs, "no more sequences run than allowed")
    planned = [id(piece.sequence) for piece in plan.slices]
    require(len(set(planned)) == len(planned), "a sequence has one slice a step")
    for piece in plan.slices:
        seq = piece.sequence
        require(seq.state is State.RUNNING, "only running sequences are planned")
        require(piece.num_new > 0, "a slice has tokens")
        require(piece.start == seq.num_computed, "a slice starts where its sequence stands")
        require(seq.blocks is not None and len(seq.blocks) * 16 >= piece.end, "a slice's tokens have blocks")
    if plan.preempted:
        best = min(seq.key for seq in plan.preempted)
        require(all(seq.key < best for seq in scheduler.running), "the last in order is preempted first")
    waiting = [seq.key for seq in scheduler.waiting if seq not in plan.preempted]
    for seq in scheduler.running:
        is_new = seq.timeline.steps == 0 and seq.timeline.first_scheduled == now
        require(not (is_new and waiting and min(waiting) < seq.key), "nobody overtakes in the queue")
    for seq in (*scheduler.running, *scheduler.waiting):
        limit = seq.request.deadline_s
        require(limit is None or seq.request.arrived + limit > now, "nobody lives past a deadline")


def check_progress(scheduler: Scheduler) -> None:
    """Every live sequence has something left to compute, and its count is true."""
    for seq in scheduler.running:
        require(seq.num_computed < len(seq.token_ids), "the newest token is never computed yet")
        require(seq.blocks is not None and seq.num_computed <= len(seq.blocks) * 16, "computed tokens have blocks")
        require(len(seq.token_ids) < seq.max_num_tokens, "a full sequence has finished")
    for seq in scheduler.waiting:
        require(seq.blocks is None and seq.num_computed == 0, "a waiting sequence owns nothing")
