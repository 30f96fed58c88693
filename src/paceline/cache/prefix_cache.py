"""Finds computed blocks by the tokens they hold, so that equal prefixes are computed once.

    digest 0 = H(root, tokens 0…15) ─▶ digest 1 = H(digest 0, tokens 16…31) ─▶ …

The one idea: a digest names a whole prefix, because it covers its parent's. The root covers everything else that the bits
depend on: the model, the backend's numerics, the tenant's salt. A match is verified by its token ids, so a collision costs
a miss, never a wrong token. Two sequences that compute the same block at the same time end up owning one of the two.

It decides nothing about eviction (`block_pool`, `eviction`) and owns no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from paceline.backends.base import BLOCK_SIZE
from paceline.cache.block_pool import NULL_BLOCK, BlockPool
from paceline.cache.block_table import BlockTable

DIGEST_BYTES = 16
_PACKED = Struct(f"<{BLOCK_SIZE}i")


def root_digest(model_digest: str, numerics: str, salt: str) -> bytes:
    """What every prefix of one model, one arithmetic and one salt starts from."""
    parts = (model_digest.encode(), numerics.encode(), salt.encode("utf-8", "surrogatepass"))
    framed = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return blake2b(framed, digest_size=DIGEST_BYTES).digest()


class PrefixChain:
    """The digests of one sequence's full blocks; computed once, kept over preemption."""

    __slots__ = ("digests", "packed", "root")

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.digests: list[bytes] = []
        self.packed: list[bytes] = []

    def catch_up(self, token_ids: Sequence[int], num_blocks: int) -> None:
        """Digest the first `num_blocks` blocks of an append-only token list, as far as not yet done."""
        for block_index in range(len(self.digests), num_blocks):
            start = block_index * BLOCK_SIZE
            packed = _PACKED.pack(*token_ids[start : start + BLOCK_SIZE])
            parent = self.digests[-1] if self.digests else self.root
            self.digests.append(blake2b(parent + packed, digest_size=DIGEST_BYTES).digest())
            self.packed.append(packed)


class _Entry(NamedTuple):
    block_id: int
    parent: int
    packed: bytes


class PrefixCache:
    """Digest → block, for every cached block of one pool."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._entries: dict[bytes, _Entry] = {}
        self._digests: dict[int, bytes] = {}
        pool.on_evict = self._forget

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, chain: PrefixChain, token_ids: Sequence[int]) -> list[int]:
        """The blocks of the longest resident prefix, at most 16·⌊(len−1)/16⌋ tokens: one token is always left to compute."""
        num_blocks = (len(token_ids) - 1) // BLOCK_SIZE
        chain.catch_up(token_ids, num_blocks)
        found: list[int] = []
        parent = NULL_BLOCK
        for block_index in range(num_blocks):
            entry = self._entries.get(chain.digests[block_index])
            if entry is None or entry.parent != parent or entry.packed != chain.packed[block_index]:
                break
            parent = entry.block_id
            found.append(parent)
        return found

    def register(self, table: BlockTable, chain: PrefixChain, token_ids: Sequence[int], num_computed: int) -> None:
        """Enter the table's blocks that are full and computed; where the cache has an equal block, own that one instead."""
        num_full = num_computed // BLOCK_SIZE
        chain.catch_up(token_ids, num_full)
        while table.num_cached < num_full:
            block_index = table.num_cached
            block_id = table.block_ids[block_index]
            parent = table.block_ids[block_index - 1] if block_index else NULL_BLOCK
            resident = self._enter(chain, block_index, block_id, parent)
            if resident is None:
                return
            if resident != block_id:
                table.replace(block_index, resident)
            table.num_cached += 1

    def _enter(self, chain: PrefixChain, block_index: int, block_id: int, parent: int) -> int | None:
        """The block that holds this prefix from now on, or None when another prefix has its digest."""
        digest, packed = chain.digests[block_index], chain.packed[block_index]
        entry = self._entries.get(digest)
        if entry is None:
            self._pool.cache(block_id, parent, digest)
            self._entries[digest] = _Entry(block_id, parent, packed)
            self._digests[block_id] = digest
            return block_id
        return entry.block_id if entry.parent == parent and entry.packed == packed else None

    def _forget(self, block_id: int) -> None:
        del self._entries[self._digests.pop(block_id)]
