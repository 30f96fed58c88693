"""`POST /v1/chat/completions`: messages through the model's chat template to one answer.

The one idea: this module knows messages; sampling, submission and writing are shared with completions (`calls.py`).
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp

from paceline.errors import RequestError
from paceline.serve.openai.calls import answer_call, open_call
from paceline.serve.openai.chunks import ChatShape
from paceline.serve.openai.sampling import chat_logprobs, sampling_params
from paceline.serve.openai.schema import ChatRequest, Message, TextPart, invalid, unsupported
from paceline.serve.state import ServerState

ROLES = ("system", "developer", "user", "assistant")
MAX_MESSAGES = 10_000


async def chat_completions(http: HttpRequest, state: ServerState) -> ASGIApp:
    """Answer a chat."""
    call = await open_call(http, state, ChatRequest)
    params = sampling_params(call.body, call.model.defaults, logprobs=chat_logprobs(call.body))
    messages = template_messages(call.body.messages)
    template = call.model.chat_template
    if template is None:
        raise RequestError("This model has no chat template; use `/v1/completions`.", param="messages", code="no_chat_template")
    kwargs = call.body.chat_template_kwargs or {}
    prompt_ids = await state.run_text(
        lambda: template.render_to_ids(messages, **kwargs), num_chars=sum(len(message["content"]) for message in messages)
    )
    return answer_call(call, [prompt_ids], params, ChatShape(), prompt_field="messages")


def template_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """The messages as chat templates read them. Errors: RequestError naming the message."""
    if not messages:
        raise invalid("`messages` is empty; expected at least one message.", "messages")
    if len(messages) > MAX_MESSAGES:
        raise invalid(f"`messages` has {len(messages)} items; expected at most {MAX_MESSAGES}.", "messages")
    return [_template_message(message, index) for index, message in enumerate(messages)]


def _template_message(message: Message, index: int) -> dict[str, Any]:
    where = f"messages[{index}]"
    if message.role == "tool" or message.tool_calls or message.function_call:
        raise unsupported(f"{where}.role" if message.role == "tool" else f"{where}.tool_calls", "A message of a tool call")
    if message.role not in ROLES:
        raise invalid(f"`{where}.role` is `{message.role[:40]}`; expected one of {', '.join(ROLES)}.", f"{where}.role")
    if message.content is None:
        raise invalid(f"`{where}.content` is null; expected text.", f"{where}.content")
    role = "system" if message.role == "developer" else message.role
    content = message.content if isinstance(message.content, str) else _joined(message.content, where)
    return {"role": role, "content": content} | ({"name": message.name} if message.name else {})


def _joined(parts: list[TextPart], where: str) -> str:
    for part in parts:
        if part.type != "text":
            raise unsupported(f"{where}.content", f"Content of type `{part.type[:40]}`")
        if part.text is None:
            raise invalid(f"A text part of `{where}.content` has no `text`.", f"{where}.content")
    return "\n".join(part.text for part in parts if part.text is not None)
