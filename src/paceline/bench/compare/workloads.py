"""What is compared: each workload with its exact sizes, and what a figure of it counts.

The one idea: a workload is plain data that goes to every runner, ours or a peer's, so no two of them can differ in sizes.

    decode    `streams` sequences of distinct prompts, each from context `prompt_tokens` on by `new_tokens` steps; prompts not timed
    prefill   one prompt, up to its first token
    chats     `streams` prompts arrive at once and get `new_tokens` each; the whole run is timed
    http      the same as streamed chats over HTTP
    verify    steps of `streams` rows of one sequence, as a check of drafts has them; compared with steps of one row

Prompts are random tokens (words over HTTP), new in every run; prefix caches are off and end tokens are ignored.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from paceline.errors import RequestError

Kind = Literal["decode", "prefill", "chats", "http", "verify"]


class Workload(msgspec.Struct, frozen=True):
    """One thing to measure. Units: tokens; `repeat` runs make one measurement."""

    name: str
    kind: Kind
    streams: int
    prompt_tokens: int
    new_tokens: int
    repeat: int = 1

    @property
    def unit(self) -> str:
        """What `figure` gives."""
        return "ms/step" if self.kind == "verify" else "tok/s"

    @property
    def num_tokens(self) -> int:
        """The tokens that a rate counts: those of the prompt for `prefill`, new ones otherwise."""
        return self.prompt_tokens if self.kind == "prefill" else self.streams * self.new_tokens

    def figure(self, seconds: float) -> float:
        """The figure of a run that took so long: a rate, or for `verify` the time of a step."""
        return 1e3 * seconds / self.new_tokens if self.kind == "verify" else self.num_tokens / seconds


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("decode1", "decode", streams=1, prompt_tokens=128, new_tokens=64, repeat=3),
        Workload("decode16", "decode", streams=16, prompt_tokens=128, new_tokens=64),
        Workload("prefill512", "prefill", streams=1, prompt_tokens=512, new_tokens=1, repeat=3),
        Workload("chats16", "chats", streams=16, prompt_tokens=170, new_tokens=128),
        Workload("http", "http", streams=16, prompt_tokens=170, new_tokens=128),
        Workload("verify5", "verify", streams=5, prompt_tokens=128, new_tokens=64, repeat=3),
    )
}

ONE_ROW = msgspec.structs.replace(WORKLOADS["verify5"], streams=1)
"""What `verify5` is compared with."""


def find_workloads(names: str) -> list[Workload]:
    """The workloads of a list such as `decode1,http`. Errors: RequestError for an unknown one."""
    unknown = [name for name in names.split(",") if name not in WORKLOADS]
    if unknown:
        raise RequestError(f"`{unknown[0]}` is no workload; expected some of {', '.join(WORKLOADS)}.", param="workload")
    return [WORKLOADS[name] for name in dict.fromkeys(names.split(","))]
