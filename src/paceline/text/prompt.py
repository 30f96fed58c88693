"""From messages to prompt ids: the template's markup as control tokens, everything a user wrote as plain characters.

The one idea: render, then cut at control tokens, then encode what lies between, whole. So text is merged across the borders of
messages just as the model saw it in training, and equal to encoding the rendered text at once. Only where a message spells a control
token is anything done first: one character of it is replaced by a stand-in that occurs nowhere else, and after the cutting every
stand-in is turned back. What a user spells can thus never become a mark, and costs nothing in the usual case.

Two limits, both the template's own doing. A template that searches messages for a control token's text does not find it. A template that
builds a control token around a user's string (`'<' + name + '>'`) gets one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from paceline.errors import RequestError
from paceline.log import log
from paceline.text.chat import ChatTemplate, chat_template_for
from paceline.text.control import Segment
from paceline.text.messages import template_messages, texts_within, unused_characters, with_texts
from paceline.text.template_limits import MAX_VALUE
from paceline.text.tokenizer import Tokenizer


class ChatEncoder:
    """Chats of one model: its template and its tokenizer. Safe to use from several threads."""

    __slots__ = ("template", "tokenizer")

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.tokenizer = tokenizer
        self.template = template

    def render_to_ids(
        self,
        messages: object,
        max_model_len: int | None = None,
        /,
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **variables: object,
    ) -> list[int]:
        """The prompt ids of a chat, with exactly one BOS where the model wants one.

        Errors:  RequestError, as `ChatTemplate.render` · ContextLengthError for a long text that cannot fit `max_model_len` ids
        """
        _check_size([messages, tools, variables])
        stand_ins = _StandIns([self.template.source, *self.tokenizer.vocabulary.control_ids], [messages, tools, variables])
        neutralised = partial(self.tokenizer.splitter.neutralised, stand_in=stand_ins.take)
        checked = [
            {key: value if key == "role" else with_texts(value, neutralised) for key, value in message.items()}
            for message in template_messages(messages)
        ]
        text = self.template.render(
            checked,
            tools=with_texts(tools, neutralised),
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            **with_texts(variables, neutralised),
        )
        self.tokenizer.check_length(text, max_model_len, parse_special=True)
        segments = [stand_ins.restored(segment) for segment in self.tokenizer.splitter.split(text)]
        return self.tokenizer.encode_segments(segments, add_special=True)


def load_chat_encoder(tokenizer: Tokenizer, template_source: str | None = None) -> ChatEncoder:
    """Chats by the given template, else the model's own, else a plain one, and that is logged. Errors: ModelError, not a template."""
    template = chat_template_for(tokenizer.vocabulary, template_source)
    if template.note is not None:
        log("warning", "text.chat_template", note=template.note)
    return ChatEncoder(tokenizer, template)


def _check_size(given: object) -> None:
    """Refuse at once what no template could print. Errors: RequestError."""
    num_characters = sum(map(len, texts_within(given)))
    if num_characters > MAX_VALUE:
        message = f"The messages have {num_characters} characters; expected at most {MAX_VALUE}."
        raise RequestError(message, param="messages", code="context_length_exceeded")


class _StandIns:
    """Characters that occur nowhere in a request, each standing for one that must not be read as part of a control token."""

    __slots__ = ("_by_character", "_given", "_texts", "_unused")

    def __init__(self, texts: Sequence[str], given: object) -> None:
        self._texts = texts
        self._given = given
        self._unused: Iterator[str] | None = None
        self._by_character: dict[str, str] = {}

    def take(self, character: str) -> str:
        """The stand-in for a character. Errors: RequestError when no unused character is left."""
        if self._unused is None:
            self._unused = unused_characters([*self._texts, *texts_within(self._given)])
        if character not in self._by_character:
            self._by_character[character] = next(self._unused)
        return self._by_character[character]

    def restored(self, segment: Segment) -> Segment:
        """A segment as it was written."""
        if isinstance(segment, int) or not self._by_character:
            return segment
        return segment.translate({ord(stand_in): character for character, stand_in in self._by_character.items()})
