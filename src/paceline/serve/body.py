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
MIN_BYTES_PER_S = 4096
"""The slowest that a whole body may come, after a first `BODY_PAUSE_S`."""
MAX_DISCARDED_BYTES, DISCARD_S, DISCARD_PAUSE_S = 256 << 20, 10.0, 1.0
"""How much of a refused body is still taken: a connection that is closed on unread bytes loses the answer on its way."""
MAX_VALUES = 500_000
"""Most JSON values of a body. They take up to 60 bytes of memory a byte of body, and hold up the event loop while they are made."""
MAX_WARNINGS = 16
MAX_NAME_CHARS = 64

S = TypeVar("S", bound=msgspec.Struct)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_path = re.compile(r" - at .*?`\$\.?([A-Za-z_]\w*)?")


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body. Errors: BodyTooLargeError, SlowBodyError, RequestError for an encoded body; ClientDisconnect."""
    try:
        return await _read(request, max_bytes)
    except BodyTooLargeError:
        if "expect" not in request.headers:  # who asks first sends nothing when refused
            await _discard(request)
        raise


async def _read(request: Request, max_bytes: int) -> bytes:
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError("The body is compressed; send it as plain JSON.", code="unsupported_encoding")
    claimed = request.headers.get("content-length", "")
    if claimed.isdigit() and int(claimed) > max_bytes:
        raise BodyTooLargeError(f"The body has {claimed} bytes; the limit is {max_bytes}.")
    body = bytearray()
    clock = asyncio.get_running_loop().time
    started = clock()
    while True:
        left_s = started + BODY_PAUSE_S + len(body) / MIN_BYTES_PER_S - clock()
        try:
            message = await asyncio.wait_for(request.receive(), min(BODY_PAUSE_S, left_s))
        except TimeoutError:
            raise SlowBodyError(f"The body stopped, or came slower than {MIN_BYTES_PER_S} bytes a second.") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise BodyTooLargeError(f"The body is larger than the limit of {max_bytes} bytes.")
        if not message.get("more_body", False):
            return bytes(body)


async def _discard(request: Request) -> None:
    """Take the rest of a refused body, within limits."""
    num_bytes, is_more = 0, True
    try:
        async with asyncio.timeout(DISCARD_S):
            while is_more and num_bytes < MAX_DISCARDED_BYTES:
                message = await asyncio.wait_for(request.receive(), DISCARD_PAUSE_S)
                num_bytes += len(message.get("body", b""))
                is_more = message.get("more_body", False)
    except TimeoutError:
        return


def decode_body(body: bytes, schema: type[S]) -> tuple[S, list[str]]:
    """The body as `schema`, and a warning for every unknown field. Errors: RequestError naming the field at fault."""
    check_values(body)
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


def check_values(body: bytes) -> None:
    """Refuse a body of too many JSON values, counted without making any. Errors: RequestError."""
    marks = (b",", b"[", b"{")
    if len(body) <= MAX_VALUES or sum(map(body.count, marks)) <= MAX_VALUES:
        return
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")  # every quote left over begins or ends a string
    num_strings = plain.count(b'"') // 2
    outside = b"" if num_strings > MAX_VALUES else b"".join(plain.split(b'"')[::2])
    num_values = max(num_strings, sum(map(outside.count, marks)))
    if num_values > MAX_VALUES:
        message = f"The body holds {num_values} JSON values or more; the limit is {MAX_VALUES}."
        raise RequestError(message, code="too_many_values")


def _warnings(unknown: list[str]) -> list[str]:
    warnings = [f"`{_shortened(name, MAX_NAME_CHARS)}` is not a known field; it was ignored." for name in unknown[:MAX_WARNINGS]]
    if len(unknown) > MAX_WARNINGS:
        warnings.append(f"{len(unknown) - MAX_WARNINGS} more unknown fields were ignored.")
    return warnings


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
