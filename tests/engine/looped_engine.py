"""An engine for tests of everything around it: says its tokens one a step, and does nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from paceline.engine.messages import EngineInfo, EngineStats, Event, Finished, Timings, Tokens
from paceline.engine.request import FinishReason, Request
from paceline.errors import CapacityError
from paceline.sampling.params import SamplingParams

INFO = EngineInfo(
    model_name="looped",
    family="llama",
    backend="looped",
    vocab_size=512,
    max_model_len=128,
    num_blocks=9,
    block_size=16,
    max_num_seqs=8,
    max_num_batched_tokens=64,
    threads=1,
    load_s=0.0,
)


def looped_request(request_id: str = "a", *, max_tokens: int = 3, n: int = 1) -> Request:
    """A request that the looped engine answers."""
    params = SamplingParams(max_tokens=max_tokens, n=n, seed=1)
    return Request(id=request_id, prompt_ids=[1, 2], params=params, arrived=time.monotonic())


class LoopedEngine:
    """Each open sequence gets the next of `says` in each step, over and over, until its `max_tokens`."""

    def __init__(
        self, says: Sequence[int] = (65, 66, 67), *, fails_at_step: int | None = None, refuses: bool = False, max_model_len: int = 128
    ) -> None:
        self.info = msgspec.structs.replace(INFO, max_model_len=max_model_len)
        self.is_closed = False
        self.num_steps = 0
        self._says = says
        self._fails_at_step = fails_at_step
        self._refuses = refuses
        self._said: dict[tuple[str, int], int] = {}
        self._requests: dict[str, Request] = {}
        self._events: list[Event] = []

    def submit(self, request: Request) -> None:
        """Open its sequences."""
        if self._refuses:
            raise CapacityError("The queue is full.")
        self._requests[request.id] = request
        self._said |= {(request.id, index): 0 for index in range(request.params.n)}

    def abort(self, request_id: str) -> None:
        """Finish its sequences with the next step."""
        for key in [key for key in self._said if key[0] == request_id]:
            self._finish(key, "abort")

    def abort_all(self) -> None:
        """Finish everything with the next step."""
        for key in list(self._said):
            self._finish(key, "abort")

    def has_work(self) -> bool:
        """Whether a step would say anything."""
        return bool(self._said or self._events)

    def step(self) -> list[Event]:
        """A token for each open sequence."""
        self.num_steps += 1
        if self.num_steps == self._fails_at_step:
            raise ZeroDivisionError("planted")
        for key, count in list(self._said.items()):
            self._events.append(Tokens(*key, [self._says[count % len(self._says)]]))
            self._said[key] = count + 1
            if count + 1 == self._requests[key[0]].params.max_tokens:
                self._finish(key, "length")
        events, self._events = self._events, []
        return events

    def stats(self) -> EngineStats:
        """Open sequences, and the steps."""
        return EngineStats(num_running=len(self._said), num_blocks=9, num_blocks_used=len(self._said), num_steps=self.num_steps)

    def close(self) -> None:
        """Remember that it was asked."""
        self.is_closed = True

    def _finish(self, key: tuple[str, int], reason: FinishReason) -> None:
        request, now = self._requests[key[0]], time.monotonic()
        timings = Timings(request.arrived, request.arrived, request.arrived, now, 0.0, self.num_steps, 0, 0, 0)
        self._events.append(Finished(*key, reason, None, len(request.prompt_ids), self._said.pop(key), timings))
