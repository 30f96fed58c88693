"""Chat messages, checked and brought to the one form that templates read.

The one idea: templates are written against plain dicts of plain text. What the API allows beyond (text in parts, the developer role,
arguments of tool calls as JSON text, absent content) is resolved here, once, so that every model's template sees the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from paceline.errors import RequestError

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool", "function": "function"}
"""The roles that are taken, each with the one that templates see."""
MAX_MESSAGES = 10_000

TemplateMessage = dict[str, Any]
"""A message as templates read it: `role` and `content` always, other fields as they came, none of them None."""


def template_messages(messages: object) -> list[TemplateMessage]:
    """The messages as chat templates read them; new objects.

    Text parts are joined by a newline. JSON text in a tool call's `arguments` becomes the object that it spells. An assistant's
    absent content becomes empty text where there are tool calls.
    Errors:  RequestError naming `messages` and what is wrong with which
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise _error("`messages` is no list; expected a list of messages.")
    if not 1 <= len(messages) <= MAX_MESSAGES:
        raise _error(f"`messages` has {len(messages)} entries; expected 1 to {MAX_MESSAGES}.")
    return [_template_message(message, index) for index, message in enumerate(messages)]


def _template_message(message: object, index: int) -> TemplateMessage:
    where = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise _error(f"`{where}` is a {type(message).__name__}; expected an object.")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise _error(f"`{where}.role` is `{str(role)[:40]}`; expected one of {', '.join(ROLES)}.")
    kept = {str(key): value for key, value in message.items() if value is not None}
    calls = _tool_calls(kept.get("tool_calls"), where)
    content = _content(message.get("content"), where, may_lack=role == "assistant" and bool(calls))
    return kept | {"role": ROLES[role], "content": content} | ({"tool_calls": calls} if calls else {})


def _content(content: object, where: str, *, may_lack: bool) -> str:
    if isinstance(content, str):
        return content
    if content is None and may_lack:
        return ""
    if not isinstance(content, Sequence) or not content:
        raise _error(f"`{where}.content` is {json.dumps(content, default=str)[:40]}; expected text or a list of text parts.")
    return "\n".join(_part_text(part, f"{where}.content[{index}]") for index, part in enumerate(content))


def _part_text(part: object, where: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or kind not in ("text", "input_text", "output_text"):
        raise _error(f"`{where}` has type `{str(kind)[:40]}`; this model reads text only.")
    text = part.get("text")
    if not isinstance(text, str):
        raise _error(f"`{where}.text` is missing; expected text.")
    return text


def _tool_calls(calls: object, where: str) -> list[dict[str, Any]]:
    if calls is None:
        return []
    if not isinstance(calls, Sequence) or not all(isinstance(call, Mapping) for call in calls):
        raise _error(f"`{where}.tool_calls` is no list of objects.")
    return [_tool_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: Mapping[str, Any], where: str) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise _error(f"`{where}.function` has no name; expected an object with `name` and `arguments`.")
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        arguments = _object_or_text(arguments)
    return {**call, "function": {**function, "arguments": arguments}}


def _object_or_text(text: str) -> Any:
    """The object that JSON text spells, or the text itself when it spells none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _error(message: str) -> RequestError:
    return RequestError(message, param="messages", code="invalid_value")


def texts_within(value: object) -> Iterator[str]:
    """Every string in a value of plain dicts and lists, keys too."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple)):
            waiting += item


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A value of plain dicts and lists with every string in it changed, keys too; a new one. Errors: RequestError, nested too deep"""
    try:
        return _with_texts(value, change)
    except RecursionError as error:
        raise _error("The messages or tools nest too deep.") from error


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_with_texts(key, change): _with_texts(item, change) for key, item in value.items()}
    return [_with_texts(item, change) for item in value] if isinstance(value, (list, tuple)) else value


def unused_characters(texts: Iterable[str]) -> Iterator[str]:
    """Printable characters that occur in none of the texts. Errors: RequestError when no more are left.

    They are cuneiform: letters without case, width or composition, so no filter, printing or normalisation changes them.
    """
    used = set().union(*texts)
    yield from (chr(code) for code in range(0x12000, 0x12390) if chr(code) not in used)
    raise _error("The messages use every cuneiform sign; at least one must be left over.")
