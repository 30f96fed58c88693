"""Hit rates of eviction policies on a recorded trace: `python -m benchmarks.eviction TRACE [--capacity 2000,5000,…] [--json]`.

TRACE is `conversation_trace.jsonl` of Mooncake (https://github.com/kvcache-ai/Mooncake, Apache-2.0): per request its arrival in
milliseconds and a hash for each 512 tokens of its prompt. The pool and the policies are the engine's own; 2Q, GDSF and Belady's
clairvoyant order are here for comparison. The hit rate is the share of blocks found resident, prefixes only. The policy learns from the
first request on; claims are made on the second half of the requests.

Promise: on the second half `value` is never below the best of LRU, 2Q and GDSF, and at least 1.4 times LRU at 2,000 and 5,000 blocks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import msgspec

from benchmarks.eviction_baselines import Clairvoyant, GreedyDualSizeFrequency, TwoQueues
from paceline.cache.block_pool import NULL_BLOCK, BlockPool
from paceline.cache.eviction import EvictionPolicy, FirstInFirstOut, LeastRecentlyUsed
from paceline.cache.value import ValuePolicy

CAPACITIES = (2_000, 5_000, 10_000, 20_000, 50_000)
RIVALS = ("lru", "2q", "gdsf")
GAIN_AT = {2_000: 1.4, 5_000: 1.4}
"""Times LRU's hit rate that `value` must reach at these capacities."""


class TraceRequest(msgspec.Struct):
    """A line of the trace."""

    timestamp: float
    hash_ids: list[int]


@dataclass(frozen=True, slots=True)
class HitRates:
    """Shares of blocks found resident, over the first and the second half of the requests."""

    first: float
    second: float


def read_trace(path: Path) -> list[TraceRequest]:
    """The requests of a trace in order of arrival."""
    decoder = msgspec.json.Decoder(TraceRequest)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()]


def key_of(hash_id: int) -> bytes:
    """What names a content to the policies, as the prefix cache's digests do."""
    return blake2b(hash_id.to_bytes(8, "little"), digest_size=16).digest()


class Replay:
    """One pool under one policy; requests come, own their blocks for a moment, and go."""

    def __init__(self, num_blocks: int, policy: EvictionPolicy) -> None:
        self.pool = BlockPool(num_blocks + 1, policy)
        self.pool.on_evict = self._forget
        self._blocks: dict[int, int] = {}
        self._contents: dict[int, int] = {}

    def _forget(self, block_id: int) -> None:
        del self._blocks[self._contents.pop(block_id)]

    def run(self, request: TraceRequest) -> int:
        """How many of the request's leading blocks were resident."""
        self.pool.now = request.timestamp / 1000.0
        table: list[int] = []
        for hash_id in request.hash_ids:
            block_id = self._blocks.get(hash_id)
            if block_id is None:
                break
            self.pool.share(block_id)
            table.append(block_id)
        num_hits = len(table)
        for hash_id in request.hash_ids[num_hits:]:
            block_id = self.pool.allocate()
            self.pool.cache(block_id, table[-1] if table else NULL_BLOCK, key_of(hash_id))
            self._blocks[hash_id], self._contents[block_id] = block_id, hash_id
            table.append(block_id)
        for block_id in reversed(table):
            self.pool.release(block_id)
        return num_hits


def hit_rates(requests: Sequence[TraceRequest], num_blocks: int, policy: EvictionPolicy) -> HitRates:
    """Replay a whole trace."""
    replay, halves = Replay(num_blocks, policy), ([0, 0], [0, 0])
    for index, request in enumerate(requests):
        half = halves[index >= len(requests) // 2]
        half[0] += replay.run(request)
        half[1] += len(request.hash_ids)
    return HitRates(*(hits / blocks for hits, blocks in halves))


def policies(requests: Sequence[TraceRequest]) -> dict[str, Callable[[int], EvictionPolicy]]:
    """Every policy by name, made for a capacity."""
    uses = [(request.timestamp / 1000.0, [key_of(hash_id) for hash_id in request.hash_ids]) for request in requests]
    return {
        "value": ValuePolicy,
        "lru": lambda _: LeastRecentlyUsed(),
        "fifo": lambda _: FirstInFirstOut(),
        "2q": TwoQueues,
        "gdsf": lambda _: GreedyDualSizeFrequency(),
        "belady": lambda _: Clairvoyant(uses),
    }


def broken_promises(rates: dict[int, dict[str, HitRates]]) -> list[str]:
    """What the figures do not keep, in words."""
    broken = []
    for capacity, of_policy in rates.items():
        value, best = of_policy["value"].second, max(of_policy[name].second for name in RIVALS)
        if value < best:
            broken.append(f"at {capacity} blocks a rival finds {best:.2%}, value {value:.2%}")
        wanted = GAIN_AT.get(capacity, 1.0) * of_policy["lru"].second
        if value < wanted:
            broken.append(f"at {capacity} blocks value finds {value:.2%}; {wanted:.2%} were promised")
    return broken


def main() -> int:
    """Print the table as JSON; 1 when the promise is broken."""
    parser = argparse.ArgumentParser(description="Hit rates of eviction policies on a recorded trace.")
    parser.add_argument("trace", type=Path)
    parser.add_argument("--capacity", default=",".join(map(str, CAPACITIES)), help="blocks of the pool, comma separated")
    arguments = parser.parse_args()
    requests = read_trace(arguments.trace)
    rates: dict[int, dict[str, HitRates]] = {}
    for capacity in map(int, arguments.capacity.split(",")):
        rates[capacity] = {name: hit_rates(requests, capacity, make(capacity)) for name, make in policies(requests).items()}
        print(
            f"{capacity}: " + "  ".join(f"{name} {rate.second:.2%}" for name, rate in rates[capacity].items()), file=sys.stderr, flush=True
        )
    broken = broken_promises(rates)
    table = {
        str(capacity): {name: [round(100 * rate.first, 2), round(100 * rate.second, 2)] for name, rate in of_policy.items()}
        for capacity, of_policy in rates.items()
    }
    print(json.dumps({"requests": len(requests), "hit_percent_first_and_second_half": table, "broken_promises": broken}))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
