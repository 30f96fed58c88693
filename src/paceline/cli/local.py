"""A model in this process, for one person at a terminal: text in, pieces of text out.

The one idea: the engine is stepped between two prints, so Ctrl-C is a flag that is looked at between steps and never
leaves the engine half way.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import FrameType

from paceline.config import EngineConfig
from paceline.engine.answer_text import end_token_places, text_stream
from paceline.engine.build import build_engine
from paceline.engine.door import make_request
from paceline.engine.messages import Finished, Tokens
from paceline.errors import EngineError
from paceline.formats.open import open_checkpoint
from paceline.sampling.params import SamplingParams
from paceline.text.prompt import ChatEncoder, load_chat_encoder
from paceline.text.stream import TextStream
from paceline.text.tokenizer import load_tokenizer


class LocalModel:
    """An engine and its tokenizer; one answer at a time."""

    def __init__(self, path: Path, config: EngineConfig) -> None:
        checkpoint = open_checkpoint(path)
        self._tokenizer = load_tokenizer(checkpoint)
        self._engine = build_engine(config, path)
        self._num_answers = 0
        self.was_interrupted = False
        """Whether Ctrl-C ended the last answer."""
        self._seed = config.seed

    @property
    def max_model_len(self) -> int:
        """The longest context in tokens."""
        return self._engine.info.max_model_len

    @property
    def is_chat_model(self) -> bool:
        """Whether the model brings a chat template of its own."""
        return self._tokenizer.chat_template is not None

    def text_ids(self, text: str) -> list[int]:
        """The prompt of a bare text."""
        return self._tokenizer.encode(text, add_special=True, parse_special=True)

    def chat_ids(self, history: list[tuple[str, str]]) -> list[int]:
        """The prompt of a chat of (role, text). Errors: RequestError."""
        return self._chat.render_to_ids([{"role": role, "content": text} for role, text in history])

    def answer(self, prompt_ids: list[int], params: SamplingParams) -> Iterator[str]:
        """Pieces of the continuation; closing the iterator or Ctrl-C aborts it. Errors: RequestError, EngineError."""
        self._num_answers += 1
        request = make_request(
            request_id=f"local-{self._num_answers}",
            prompt_ids=prompt_ids,
            params=params,
            info=self._engine.info,
            eos_ids=self._tokenizer.eos_ids,
            now=time.monotonic(),
            draw_seed=lambda: self._seed + self._num_answers - 1,
        )
        self._engine.submit(request)
        text = text_stream(self._tokenizer.vocabulary, params)
        try:
            with _interrupts() as interrupted:
                while self._engine.has_work() and not interrupted:
                    yield self._step(text)
                self.was_interrupted = bool(interrupted)
        finally:
            self._engine.abort(request.id)
            while self._engine.has_work():
                self._engine.step()
        yield text.finish()

    @cached_property
    def _chat(self) -> ChatEncoder:
        return load_chat_encoder(self._tokenizer)

    def _step(self, text: TextStream) -> str:
        pieces = []
        events = self._engine.step()
        ends = end_token_places(events)
        for place, event in enumerate(events):
            match event:
                case Tokens(token_ids=token_ids):
                    pieces.append(text.push(token_ids[:-1] if place in ends else token_ids))
                case Finished(reason="error"):
                    raise EngineError(event.message)
        return "".join(pieces)

    def close(self) -> None:
        """Give back the engine's memory."""
        self._engine.close()


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Collect Ctrl-C in a list instead of raising."""
    seen: list[int] = []

    def collect(number: int, _frame: FrameType | None) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGINT, collect)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
