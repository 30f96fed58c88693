"""The offline API: a model in this process, lists of prompts in, lists of finished answers out.

    llm = LLM("smollm2:135m", threads=2)
    outputs = llm.generate(["Once upon a time"], SamplingParams(max_tokens=50))
    print(outputs[0].outputs[0].text)

The one idea: it is one more door to the same engine. Requests are made where the server makes them, text comes out of the same
`TextStream`, and all prompts of a call share steps and prefixes.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from paceline.config import EngineConfig
from paceline.engine.answer_text import is_by_token, text_stream
from paceline.engine.build import build_engine
from paceline.engine.door import make_request
from paceline.engine.messages import EngineInfo, Event, Finished, Timings, TokenLogprobs, Tokens
from paceline.engine.request import FinishReason, Request
from paceline.errors import CapacityError, EngineError, NotFoundError, RequestError
from paceline.formats.open import open_checkpoint
from paceline.formats.pull import pull, resolve
from paceline.log import log
from paceline.sampling.params import SamplingParams
from paceline.text.prompt import ChatEncoder, load_chat_encoder
from paceline.text.tokenizer import Tokenizer, load_tokenizer

GENERATE_MAX_TOKENS = 16
"""New tokens of `generate` when the params do not say, as in OpenAI's completions; `chat` goes on to the end of the context."""

Prompt = str | Sequence[int] | Mapping[str, Any]
"""Text, token ids, or {"prompt": text} or {"prompt_token_ids": ids}."""
Message = Mapping[str, Any]


class Logprob(NamedTuple):
    """One token's log-probability at one position; rank 1 is the likeliest."""

    logprob: float
    rank: int
    decoded_token: str


@dataclass(slots=True)
class CompletionOutput:
    """One finished sequence."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None
    """Per token: the chosen one's and the asked-for alternatives' log-probabilities by token id."""
    cumulative_logprob: float | None
    finish_reason: FinishReason
    stop_reason: str | int | None


@dataclass(slots=True)
class RequestOutput:
    """One finished prompt, its sequences in the order of their index."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    finished: bool
    outputs: list[CompletionOutput]
    num_cached_tokens: int
    timings: Timings
    """Of the first sequence."""


class _Prompt(NamedTuple):
    """A prompt's text, when it has one, and its ids."""

    text: str | None
    token_ids: list[int]


@dataclass(slots=True)
class _Answer:
    """What has come of one sequence."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    end: Finished | None = None


class LLM:
    """A model, ready to generate. Calls from several threads wait for each other; close it, or use it as a context manager."""

    def __init__(self, model: str | Path, **config: Any) -> None:
        """Load a model by catalog name, path or hub id; `config` takes the server's flags (`threads`, `max_num_seqs`, `seed` …).

        Errors:  RequestError for an unknown or wrong setting · NotFoundError · ModelError
        """
        engine_config = engine_config_from(config)
        path = _find(str(model))
        self.tokenizer: Tokenizer = load_tokenizer(open_checkpoint(path))
        self._engine = build_engine(engine_config, path)
        self._random = random.Random(engine_config.seed)
        self._num_requests = 0
        self._is_closed = False
        self._turn = threading.Lock()

    @property
    def info(self) -> EngineInfo:
        """What the engine turned out to be; `notes` say what `auto` resolved to."""
        return self._engine.info

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Continue each prompt; outputs come in the prompts' order. `use_tqdm` shows progress on stderr.

        Errors:  RequestError, ContextLengthError before anything runs · EngineError when the engine fails
        """
        read = [self._read_prompt(prompt) for prompt in _as_list(prompts)]
        return self._run(read, _params_for(read, sampling_params, GENERATE_MAX_TOKENS), use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
        **template_variables: Any,
    ) -> list[RequestOutput]:
        """Answer a conversation, or each of a list of them, through the model's chat template. Errors: as `generate`."""
        if not isinstance(messages, Sequence) or isinstance(messages, str):
            raise RequestError(f"`messages` is a {type(messages).__name__}; expected a list of messages.", param="messages")
        conversations = [messages] if messages and isinstance(messages[0], Mapping) else messages
        render, limit = self._chat.render_to_ids, self.info.max_model_len
        prompts = [_Prompt(None, render(conversation, limit, **template_variables)) for conversation in conversations]
        return self._run(prompts, _params_for(prompts, sampling_params, None), use_tqdm)

    def close(self) -> None:
        """Give back threads and memory; idempotent."""
        with self._turn:
            self._is_closed = True
            self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @cached_property
    def _chat(self) -> ChatEncoder:
        return load_chat_encoder(self.tokenizer)

    def _read_prompt(self, prompt: object) -> _Prompt:
        if isinstance(prompt, Mapping):
            known = [key for key in ("prompt", "prompt_token_ids") if key in prompt]
            if len(known) != 1:
                raise RequestError("A prompt is a mapping; expected either `prompt` or `prompt_token_ids` in it.", param="prompt")
            prompt = prompt[known[0]]
        if isinstance(prompt, str):
            return _Prompt(
                prompt, self.tokenizer.encode(prompt, add_special=True, parse_special=True, max_model_len=self.info.max_model_len)
            )
        if not isinstance(prompt, Sequence) or isinstance(prompt, bytes) or not all(type(token_id) is int for token_id in prompt):
            raise RequestError("A prompt is neither text nor a list of token ids.", param="prompt")
        return _Prompt(None, list(prompt))

    def _run(self, prompts: list[_Prompt], params: list[SamplingParams], shows_progress: bool) -> list[RequestOutput]:
        with self._turn:
            if self._is_closed:
                raise EngineError("This model has been closed; make a new `LLM`.")
            return self._run_alone(prompts, params, shows_progress)

    def _run_alone(self, prompts: list[_Prompt], params: list[SamplingParams], shows_progress: bool) -> list[RequestOutput]:
        requests = [self._make_request(prompt.token_ids, one) for prompt, one in zip(prompts, params, strict=True)]
        answers = {(request.id, index): _Answer() for request in requests for index in range(request.params.n)}
        progress = _Progress(len(answers)) if shows_progress else None
        pending = deque(requests)
        try:
            while pending or self._engine.has_work():
                self._submit(pending)
                num_finished = sum(_hear(answers, event) for event in self._engine.step())
                if progress is not None:
                    progress.advance(num_finished)
        finally:
            self._clear()
            if progress is not None:
                progress.close()
        return [self._output(request, prompt.text, answers) for request, prompt in zip(requests, prompts, strict=True)]

    def _make_request(self, prompt_ids: list[int], params: SamplingParams) -> Request:
        self._num_requests += 1
        return make_request(
            request_id=str(self._num_requests - 1),
            prompt_ids=prompt_ids,
            params=params,
            info=self._engine.info,
            eos_ids=self.tokenizer.eos_ids,
            now=time.monotonic(),
            draw_seed=lambda: self._random.getrandbits(48),
        )

    def _submit(self, pending: deque[Request]) -> None:
        """Submit as many as the queue takes; the rest waits for the next step."""
        while pending:
            try:
                self._engine.submit(pending[0])
            except CapacityError:
                return
            pending.popleft()

    def _clear(self) -> None:
        """After an error or Ctrl-C: nothing of this call stays in the engine."""
        self._engine.abort_all()
        while self._engine.has_work():
            self._engine.step()

    def _output(self, request: Request, prompt: str | None, answers: Mapping[tuple[str, int], _Answer]) -> RequestOutput:
        own = [answers[request.id, index] for index in range(request.params.n)]
        first = own[0].end
        assert first is not None, "every sequence has ended"
        return RequestOutput(
            request_id=request.id,
            prompt=prompt,
            prompt_token_ids=request.prompt_ids,
            finished=True,
            outputs=[self._completion(request.params, index, answer) for index, answer in enumerate(own)],
            num_cached_tokens=first.timings.cached_tokens,
            timings=first.timings,
        )

    def _completion(self, params: SamplingParams, index: int, answer: _Answer) -> CompletionOutput:
        end = answer.end
        assert end is not None, "every sequence has ended"
        has_logprobs = params.logprobs is not None
        return CompletionOutput(
            index=index,
            text=self._text(params, answer.token_ids, end),
            token_ids=answer.token_ids,
            logprobs=self._logprobs(answer) if has_logprobs else None,
            cumulative_logprob=sum(one.logprob for one in answer.logprobs) if has_logprobs else None,
            finish_reason=end.reason,
            stop_reason=end.stop_reason,
        )

    def _text(self, params: SamplingParams, token_ids: list[int], end: Finished) -> str:
        stream = text_stream(self.tokenizer.vocabulary, params)
        return stream.push(token_ids[:-1] if is_by_token(end) else token_ids) + stream.finish()

    def _logprobs(self, answer: _Answer) -> list[dict[int, Logprob]]:
        return [self._position(chosen, found) for chosen, found in zip(answer.token_ids, answer.logprobs, strict=True)]

    def _position(self, chosen: int, found: TokenLogprobs) -> dict[int, Logprob]:
        position = {chosen: Logprob(found.logprob, found.rank, self.tokenizer.token_text(chosen))}
        for rank, (token_id, logprob) in enumerate(zip(found.top_ids, found.top_logprobs, strict=True), 1):
            position.setdefault(token_id, Logprob(logprob, rank, self.tokenizer.token_text(token_id)))
        return position


def engine_config_from(settings: Mapping[str, Any]) -> EngineConfig:
    """The config that keywords describe, other spellings included. Errors: RequestError naming near matches of an unknown one."""
    names = {spelling: f.name for f in fields(EngineConfig) for spelling in (f.name, *f.metadata["aliases"])}
    for given in settings:
        if given not in names:
            near = get_close_matches(given, names, n=3)
            hint = f"did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else f"the settings are {', '.join(names)}."
            raise RequestError(f"`{given}` is no setting of the engine; {hint}", param=given)
    return EngineConfig(**{names[given]: value for given, value in settings.items()})


def _find(model: str) -> Path:
    path = resolve(model)
    if path is None:
        log("info", "model.pull", model=model)
        path = pull(model, lambda done, total: None)
    if not path.exists():
        raise NotFoundError(f"There is no model `{model}`.", param="model")
    return path


def _as_list(prompts: Prompt | Sequence[Prompt]) -> Sequence[object]:
    """One prompt or several, as several: a list that begins with an integer is one."""
    if isinstance(prompts, str | bytes | Mapping):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise RequestError(f"`prompts` is a {type(prompts).__name__}; expected text, token ids, or a list of either.", param="prompt")
    if prompts and isinstance(prompts[0], int):
        return [prompts]
    return prompts


def _params_for(
    prompts: Sequence[object], given: SamplingParams | Sequence[SamplingParams] | None, max_tokens: int | None
) -> list[SamplingParams]:
    """One record per prompt, with `max_tokens` where a record leaves it open."""
    params = [given or SamplingParams()] * len(prompts) if given is None or isinstance(given, SamplingParams) else given
    if not isinstance(params, Sequence) or not all(isinstance(one, SamplingParams) for one in params):
        raise RequestError("`sampling_params` is neither a `SamplingParams` nor a list of them.", param="sampling_params")
    if len(params) != len(prompts):
        raise RequestError(f"There are {len(params)} sampling params for {len(prompts)} prompts.", param="sampling_params")
    return [msgspec.structs.replace(one, max_tokens=max_tokens) if one.max_tokens is None and max_tokens else one for one in params]


def _hear(answers: Mapping[tuple[str, int], _Answer], event: Event) -> bool:
    """Take in an event; whether it finished a sequence. Errors: EngineError when the engine failed on it."""
    answer = answers[event.request_id, event.index]
    if isinstance(event, Tokens):
        answer.token_ids += event.token_ids
        answer.logprobs += event.logprobs or ()
        return False
    if event.reason == "error":
        raise EngineError(event.message)
    answer.end = event
    return True


class _Progress:
    """A bar of finished sequences on stderr."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._progress = Progress(console=Console(stderr=True))
        self._task = self._progress.add_task("Generating", total=total)
        self._progress.start()

    def advance(self, count: int) -> None:
        """So many more have finished."""
        self._progress.advance(self._task, count)

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._progress.stop()
