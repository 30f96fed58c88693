"""Finding stop strings in a stream of bytes.

The one idea: a stop string is matched byte by byte with the Knuth-Morris-Pratt automaton, and the whole memory of the
search is a small immutable tuple. Whoever holds a sequence holds its state; to roll back rejected tokens is to keep the old
tuple. Engine and front both use this class on the same bytes (`Vocabulary.visible_bytes`), so they stop at the same byte
whatever the token borders are.

The rule when several stop strings could match: the one whose last byte comes first wins; of those that end at the same byte,
the longest (the one that began first). No later byte can change the answer, so a stream never has to take text back.

It knows no text and no tokens: UTF-8 is self-synchronising, so a stop string's bytes match only where its characters do.
"""

from __future__ import annotations

from dataclasses import dataclass

StopState = tuple[int, ...]
"""For each stop string, how many of its first bytes the stream ends with."""


@dataclass(frozen=True, slots=True)
class StopMatch:
    """A stop string found while feeding one piece of data.

    Units: `start` and `end` are byte offsets into the piece just fed; `start` is negative when the match began in an earlier one
    """

    stop_index: int
    start: int
    end: int


class StopMatcher:
    """Searches a byte stream for any of a few byte strings, in linear time.

        state = matcher.start
        state, match = matcher.advance(state, data)     # as often as data comes

    With `min_tokens`, feed only the tokens after the first `min_tokens`: text before them can neither be nor begin a stop.
    """

    __slots__ = ("_failures", "_patterns", "start")

    def __init__(self, patterns: tuple[bytes, ...]) -> None:
        assert all(patterns), "a stop string holds at least one byte"
        self._patterns = patterns
        self._failures = tuple(_failure_table(pattern) for pattern in patterns)
        self.start: StopState = (0,) * len(patterns)

    def advance(self, state: StopState, data: bytes) -> tuple[StopState, StopMatch | None]:
        """The state after `data` and no match, or a fresh state and the match; bytes after a match are not read."""
        if not self._patterns:
            return state, None
        best: StopMatch | None = None
        ends: list[int] = []
        for index, num_matched in enumerate(state):
            limit = len(data) if best is None else best.end
            end, num_matched = self._advance_one(index, num_matched, data, limit)
            ends.append(num_matched)
            if end is not None:
                found = StopMatch(index, end - len(self._patterns[index]), end)
                best = found if best is None or (found.end, found.start) < (best.end, best.start) else best
        return (tuple(ends), None) if best is None else (self.start, best)

    def held(self, state: StopState) -> int:
        """How many of the last bytes fed may still become part of a stop string, so must not be sent yet."""
        return max(state, default=0)

    def _advance_one(self, index: int, num_matched: int, data: bytes, limit: int) -> tuple[int | None, int]:
        """Run one automaton over `data[:limit]`; the end of its first match, if any, and its state there."""
        pattern, failures = self._patterns[index], self._failures[index]
        for position in range(limit):
            byte = data[position]
            while num_matched and pattern[num_matched] != byte:
                num_matched = failures[num_matched - 1]
            if pattern[num_matched] == byte:
                num_matched += 1
                if num_matched == len(pattern):
                    return position + 1, failures[-1]
        return None, num_matched


def _failure_table(pattern: bytes) -> tuple[int, ...]:
    """For each prefix of `pattern`, the length of its longest proper prefix that is also its suffix.

    Source:  Knuth, Morris, Pratt 1977, "Fast pattern matching in strings"
    """
    table = [0] * len(pattern)
    length = 0
    for position in range(1, len(pattern)):
        while length and pattern[length] != pattern[position]:
            length = table[length - 1]
        if pattern[length] == pattern[position]:
            length += 1
        table[position] = length
    return tuple(table)
