"""Reads a request's JSON body within limits of size and patience, and decodes it into a schema.

The one idea: nothing is decoded before its size is known to be within the cap, and what is wrong with it is said with the
field's name. Unknown fields are accepted and named.
"""

from __future__ import annotations

import asyncio
import re
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from paceline.errors import RequestError
from paceline.serve.failures import BodyTooLargeError, SlowBodyError

BODY_PAUSE_S = 30.0
"""The longest wait for the next bytes of a body."""
MAX_WARNINGS = 16
MAX_NAME_CHARS = 64

S = TypeVar("S", bound=msgspec.Struct)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_path = re.compile(r" - at .*?`\$\.?([A-Za-z_]\w*)?")


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body. Errors: BodyTooLargeError, SlowBodyError, RequestError for an encoded body; ClientDisconnect."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError("The body is compressed; send it as plain JSON.", code="unsupported_encoding")
    claimed = request.headers.get("content-length", "")
    if claimed.isdigit() and int(claimed) > max_bytes:
        raise BodyTooLargeError(f"The body has {claimed} bytes; the limit is {max_bytes}.")
    body = bytearray()
    while True:
        try:
            message = await asyncio.wait_for(request.receive(), BODY_PAUSE_S)
        except TimeoutError:
            raise SlowBodyError(f"No more of the body came within {BODY_PAUSE_S:.0f} s.") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise BodyTooLargeError(f"The body is larger than the limit of {max_bytes} bytes.")
        if not message.get("more_body", False):
            return bytes(body)


def decode_body(body: bytes, schema: type[S]) -> tuple[S, list[str]]:
    """The body as `schema`, and a warning for every unknown field. Errors: RequestError naming the field at fault."""
    try:
        names = _fields_decoder.decode(body).keys()
        decoded = msgspec.json.decode(body, type=schema)
    except msgspec.ValidationError as error:
        message = str(error)
        found = _path.search(message)
        param = found.group(1) if found else None
        raise RequestError(f"The body does not fit: {_shortened(message, 300)}.", param=param, code="invalid_type") from None
    except msgspec.DecodeError as error:
        raise RequestError(f"The body is not valid JSON: {_shortened(str(error), 300)}.", code="invalid_json") from None
    except RecursionError:
        raise RequestError("The body is nested too deeply.", code="invalid_json") from None
    except UnicodeDecodeError:
        raise RequestError("The body is not valid UTF-8.", code="invalid_json") from None
    unknown = sorted(names - {field.encode_name for field in msgspec.structs.fields(schema)})
    return decoded, _warnings(unknown)


def _warnings(unknown: list[str]) -> list[str]:
    warnings = [f"`{_shortened(name, MAX_NAME_CHARS)}` is not a known field; it was ignored." for name in unknown[:MAX_WARNINGS]]
    if len(unknown) > MAX_WARNINGS:
        warnings.append(f"{len(unknown) - MAX_WARNINGS} more unknown fields were ignored.")
    return warnings


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
