"""`POST /v1/chat/completions`: messages through the model's chat template to one answer.

The one idea: this module knows that a chat has messages; what they may hold is `text.messages`' to say, and sampling, submission and
writing are shared with completions (`calls.py`).
"""

from __future__ import annotations

from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp

from paceline.serve.openai.calls import answer_call, open_call
from paceline.serve.openai.chunks import ChatShape
from paceline.serve.openai.sampling import chat_logprobs, sampling_params
from paceline.serve.openai.schema import ChatRequest, invalid
from paceline.serve.state import ServerState
from paceline.text.prompt import ChatEncoder

CHAT_SHAPE = ChatShape()
OWN_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", "continue_final_message"})


async def chat_completions(http: HttpRequest, state: ServerState) -> ASGIApp:
    """Answer a chat."""
    call = await open_call(http, state, ChatRequest)
    body, model = call.body, call.model
    max_model_len = state.client.info.max_model_len
    params = sampling_params(body, model.defaults, logprobs=chat_logprobs(body))
    prompt_ids = await state.run_text(lambda: _prompt_ids(body, model.chat, max_model_len), size=call.num_bytes)
    return answer_call(call, [prompt_ids], params, CHAT_SHAPE, prompt_field="messages")


def _prompt_ids(body: ChatRequest, chat: ChatEncoder, max_model_len: int) -> list[int]:
    variables = body.chat_template_kwargs or {}
    taken = sorted(OWN_VARIABLES & variables.keys())
    if taken:
        raise invalid(f"`chat_template_kwargs` sets `{taken[0]}`; expected the field of that name.", "chat_template_kwargs")
    return chat.render_to_ids(
        body.messages,
        max_model_len,
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=bool(body.continue_final_message),
        **variables,
    )
