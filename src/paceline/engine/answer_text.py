"""What a front shows of a sequence: the way back through the door, the same for HTTP, CLI and `LLM`.

The one idea: an end token or stop token ends the text and is no part of it; a stop string is cut out by `TextStream`. The event of
the last token and the end that it caused come from one step, so a front that reads whole steps never has to take text back.

It decides no ending: `endings` does, in the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.engine.messages import Event, Finished
from paceline.sampling.params import SamplingParams
from paceline.text.stream import TextStream
from paceline.text.vocabulary import Vocabulary


def text_stream(vocabulary: Vocabulary, params: SamplingParams) -> TextStream:
    """The visible text of one sequence of a request."""
    return TextStream(
        vocabulary,
        params.stop,
        skip_special_tokens=params.skip_special_tokens,
        include_stop_str_in_output=params.include_stop_str_in_output,
        min_tokens=params.min_tokens,
    )


def is_by_token(end: Finished) -> bool:
    """Whether the sequence's last token ended it, and so is no part of its text."""
    return end.reason == "stop" and not isinstance(end.stop_reason, str)


def end_token_places(events: Sequence[Event]) -> set[int]:
    """The places of the events of whole steps whose last token is no part of the text."""
    places: set[int] = set()
    for end_place, end in enumerate(events):
        if isinstance(end, Finished) and is_by_token(end):
            key = (end.request_id, end.index)
            own = (place for place in range(end_place - 1, -1, -1) if (events[place].request_id, events[place].index) == key)
            places.add(next(own, end_place))
    return places
