"""`POST /v1/completions`: prompts of text or token ids, continued.

The one idea: one to `MAX_CHOICES` prompts become as many engine requests whose choices are numbered through the answer.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp

from paceline.errors import RequestError
from paceline.serve.openai.calls import answer_call, open_call
from paceline.serve.openai.chunks import CompletionShape
from paceline.serve.openai.sampling import COMPLETION_MAX_TOKENS, sampling_params
from paceline.serve.openai.schema import CompletionRequest, invalid
from paceline.serve.state import ServerState
from paceline.text.tokenizer import Tokenizer

MAX_CHOICES = 512
COMPLETION_SHAPE = CompletionShape()


async def completions(http: HttpRequest, state: ServerState) -> ASGIApp:
    """Continue prompts."""
    call = await open_call(http, state, CompletionRequest)
    params = sampling_params(call.body, call.model.defaults, logprobs=call.body.logprobs)
    prompts = split_prompts(call.body.prompt)
    if len(prompts) * params.n > MAX_CHOICES:
        raise invalid(f"{len(prompts)} prompts times `n` {params.n} is over the limit of {MAX_CHOICES} choices.", "prompt")
    tokenizer, max_model_len = call.model.tokenizer, state.client.info.max_model_len
    prompt_ids = await state.run_text(lambda: [_token_ids(prompt, tokenizer, max_model_len) for prompt in prompts], size=call.num_bytes)
    if call.body.max_tokens is None:  # what nobody asked for must not be what does not fit
        room = max_model_len - max(map(len, prompt_ids))
        params = msgspec.structs.replace(params, max_tokens=min(COMPLETION_MAX_TOKENS, room) if room > 0 else None)
    return answer_call(call, prompt_ids, params, COMPLETION_SHAPE, prompt_field="prompt")


def split_prompts(prompt: str | list[str | int | list[int]]) -> list[str | list[int]]:
    """The prompts of any of the four forms: text, token ids, or a list of either. Errors: RequestError."""
    if isinstance(prompt, str):
        return [prompt]
    texts = [item for item in prompt if isinstance(item, str)]
    token_ids = [item for item in prompt if isinstance(item, int)]
    lists = [item for item in prompt if isinstance(item, list)]
    forms: list[list[str | list[int]]] = [[*texts], [token_ids] if token_ids else [], [*lists]]
    used = [form for form in forms if form]
    if len(used) != 1 or any(item == [] for item in lists):
        raise invalid("`prompt` has an empty or mixed list; expected text, token ids, or a list of either.", "prompt")
    return used[0]


def _token_ids(prompt: str | list[int], tokenizer: Tokenizer, max_model_len: int) -> list[int]:
    if isinstance(prompt, list):
        return prompt
    try:
        return tokenizer.encode(prompt, add_special=True, parse_special=True, max_model_len=max_model_len)
    except RequestError as error:
        error.param = "prompt"
        raise
