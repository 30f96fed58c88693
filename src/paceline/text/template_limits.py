"""What a chat template may cost: time, memory, output, each checked where it is spent.

The one idea: a template is a program from a model file. Its loops and calls are counted and timed, and every operation that can make
a value larger than its operands (`+`, `*`, `~`, `%`, formatting, joining, replacing, padding) is priced before it is done. What is
left cannot run long or grow large between two checks, so a render really ends, in its own thread, without another process.

It knows no template engine: `chat.py` calls it at the right places.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from itertools import islice
from string import Formatter
from typing import Any

MAX_VALUE = 8 << 20
"""The most characters of one string, and entries of one list, that a template may make; also its whole output."""
MAX_WORK = 256 << 20
"""The most characters that all steps of one render may make together."""
CONTAINER_SIZE, SCALAR_SIZE = 64, 24
"""What an empty list or dict, and a number, count as: their size in memory, more than they print as."""
MAX_INTEGER_BITS = 1024
MAX_WIDTH = 1000
"""The widest padding or indentation."""
RENDER_TIMEOUT_S = 2.0

GROWING_METHODS = ("join", "replace", "ljust", "rjust", "center", "zfill", "expandtabs")
_STRING_METHODS = (
    *("capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit"),
    *("islower", "isnumeric", "isspace", "istitle", "isupper", "lower", "lstrip", "partition", "removeprefix", "removesuffix"),
    *("rfind", "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper"),
)
ALLOWED_METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset((*_STRING_METHODS, *GROWING_METHODS)),
    dict: frozenset(("items", "keys", "values", "get", "copy")),
    list: frozenset(("index", "count", "copy")),
    tuple: frozenset(("index", "count")),
}
"""The methods of built-in values that a template may call."""

_WIDE_CONVERSION = re.compile(r"%[^a-zA-Z%]*(?:\d{4}|\*)")


class TemplateLimitError(Exception):
    """A template that asked for more than a render may cost."""


class RenderBudget:
    """What one render may still spend."""

    __slots__ = ("_clock", "_deadline_s", "_work")

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deadline_s = clock() + timeout_s
        self._work = MAX_WORK

    def count_step(self) -> None:
        """Count one step. Errors: TemplateLimitError when the time is over."""
        if self._clock() > self._deadline_s:
            raise TemplateLimitError("The chat template ran too long.")

    def charge(self, size: int) -> None:
        """Pay for a value of that size. Errors: TemplateLimitError when it, or all of them together, are too large."""
        if size > MAX_VALUE:
            raise TemplateLimitError(f"The chat template made a value of {size} characters; at most {MAX_VALUE} are allowed.")
        self._work -= size
        if self._work < 0:
            raise TemplateLimitError(f"The chat template made more than {MAX_WORK} characters in all.")


def printed_size(value: object, limit: int = MAX_VALUE) -> int:
    """About how many characters a value prints as, nested values counted as often as they print.

    Errors:  TemplateLimitError beyond `limit`: lists of lists of lists can print as 2^n characters while they hold n references
    """
    total, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, Mapping):
            total += CONTAINER_SIZE + 4 * len(item)
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)):
            total += CONTAINER_SIZE + 2 * len(item)
            waiting += item
        else:
            total += SCALAR_SIZE
        if total > limit:
            raise TemplateLimitError(f"The chat template made a value that prints as more than {limit} characters.")
    return total


def check_operation(budget: RenderBudget, operator: str, left: object, right: object) -> None:
    """Price a binary operation before it is done. Errors: TemplateLimitError."""
    budget.count_step()
    match operator, left, right:
        case "+", str() | list() | tuple(), str() | list() | tuple():
            budget.charge(len(left) + len(right))
        case "*", str() | list() | tuple(), int():
            budget.charge(len(left) * max(right, 0))
        case "*", int(), str() | list() | tuple():
            budget.charge(len(right) * max(left, 0))
        case "*" | "+" | "-", int(), int():
            _check_bits(left.bit_length() + right.bit_length())
        case "**", int(), int():
            _check_bits(left.bit_length() * max(abs(right), 1))
        case "%", str(), _:
            _check_conversions(budget, left, right)


def joined(budget: RenderBudget, separator: str, items: Iterable[object]) -> str:
    """Items joined as text, priced before it is done. Errors: TemplateLimitError."""
    listed = _priced_items(budget, separator, items)
    return separator.join([str(item) for item in listed])


def replaced(budget: RenderBudget, text: str, old: str, new: str, count: int = -1) -> str:
    """`text.replace(old, new, count)`, priced before it is done. Errors: TemplateLimitError."""
    budget.charge(len(text) + text.count(old) * len(new))
    return text.replace(old, new, count)


def collected(budget: RenderBudget, chunks: Iterable[str]) -> str:
    """Chunks of text joined, as many as the budget allows. Errors: TemplateLimitError."""
    kept, size = [], 0
    for chunk in chunks:
        budget.count_step()
        size += len(chunk)
        if size > MAX_VALUE:
            raise TemplateLimitError(f"The chat template wrote more than {MAX_VALUE} characters.")
        kept.append(chunk)
    return "".join(kept)


def call_growing_method(budget: RenderBudget, text: str, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
    """Call one of `GROWING_METHODS` of a string, priced before it is done. Errors: TemplateLimitError."""
    if name == "join":
        return text.join(_priced_items(budget, text, *arguments))
    if name == "replace":
        return replaced(budget, text, *arguments, **named)
    width = next((value for value in (*arguments, *named.values()) if isinstance(value, int)), 8)
    check_width(width)
    budget.charge(len(text) + max(width, 0) * (1 + text.count("\t") if name == "expandtabs" else 1))
    result: str = getattr(text, name)(*arguments, **named)
    return result


def check_width(width: object) -> None:
    """Refuse padding and indentation beyond `MAX_WIDTH`. Errors: TemplateLimitError."""
    size = len(width) if isinstance(width, str) else width
    if isinstance(size, int) and size > MAX_WIDTH:
        raise TemplateLimitError(f"The chat template pads to {size} characters; at most {MAX_WIDTH} are allowed.")


def _check_bits(num_bits: int) -> None:
    if num_bits > MAX_INTEGER_BITS:
        raise TemplateLimitError(f"The chat template made a number of more than {MAX_INTEGER_BITS} bits.")


def _check_conversions(budget: RenderBudget, text: str, arguments: object) -> None:
    if _WIDE_CONVERSION.search(text):
        raise TemplateLimitError(f"The chat template formats to a width of {MAX_WIDTH} or more.")
    budget.charge(len(text) + MAX_WIDTH * text.count("%") + text.count("%") * printed_size(arguments))


def check_fields(budget: RenderBudget, text: str, arguments: list[object]) -> None:
    """Price `str.format` before it is done. Errors: TemplateLimitError."""
    num_fields = 0
    for _, _, spec, _ in Formatter().parse(text):
        num_fields += spec is not None
        if spec and ("{" in spec or re.search(r"\d{4}", spec)):
            raise TemplateLimitError(f"The chat template formats to a width of {MAX_WIDTH} or more.")
    budget.charge(len(text) + num_fields * (MAX_WIDTH + printed_size(arguments)))


def _priced_items(budget: RenderBudget, separator: str, items: Iterable[Any]) -> list[Any]:
    listed = list(islice(items, MAX_VALUE + 1))
    budget.charge(len(listed) + len(separator) * len(listed) + sum(_text_size(item) for item in listed))
    return listed


def _text_size(value: object) -> int:
    return len(value) if isinstance(value, str) else printed_size(value)
