"""Every error Paceline raises on purpose, in one tree.

    PacelineError
    ├── RequestError    the caller can fix it            HTTP 4xx
    │   ├── ContextLengthError   prompt or prompt + new tokens exceed the context
    │   └── NotFoundError        a model or object of that name does not exist
    ├── ModelError      a file that we cannot serve      refused at load
    ├── CapacityError   not now, try later               HTTP 429 / 503
    └── EngineError     our fault                        HTTP 500

The one idea: an error says what, where, and what was expected; a hint goes on a line of its own.
Bugs of ours are `assert`s, not members of this tree. The mapping to HTTP lives in `serve/failures.py` alone.
"""

from __future__ import annotations

from pathlib import Path


class PacelineError(Exception):
    """Any error that Paceline raises on purpose; `str()` of it is fit for a user's eyes."""


class RequestError(PacelineError):
    """A request that cannot be served as written; `param` names the field at fault, `code` is machine-readable."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class ContextLengthError(RequestError):
    """A prompt (with its requested new tokens) that does not fit the context; carries both true numbers.

    Of a text so long that counting it to its end would be an attack's success, `num_tokens` is what was counted: `is_exact=False`.
    """

    def __init__(
        self, *, num_tokens: int, max_model_len: int, max_tokens: int | None = None, param: str = "messages", is_exact: bool = True
    ) -> None:
        counted = f"{num_tokens}" if is_exact else f"at least {num_tokens}"
        asked = f" and `max_tokens` asks for {max_tokens} more" if max_tokens is not None else ""
        super().__init__(
            f"The context holds {max_model_len} tokens, but the prompt has {counted}{asked}.",
            param=param,
            code="context_length_exceeded",
        )
        self.num_tokens = num_tokens
        self.max_model_len = max_model_len


class NotFoundError(RequestError):
    """A name that nothing here answers to (an unknown model, a missing file)."""


class ModelError(PacelineError):
    """A model file that cannot be served: names the file, the byte offset where known, and what was expected."""

    def __init__(self, message: str, *, path: Path | str | None = None, offset: int | None = None) -> None:
        where = "" if path is None else f"`{path}`" + ("" if offset is None else f" at byte {offset}") + ": "
        super().__init__(where + message)
        self.path = path
        self.offset = offset


class CapacityError(PacelineError):
    """The engine is full or still loading; the same request may succeed later."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineError(PacelineError):
    """The engine failed; never the caller's fault."""
