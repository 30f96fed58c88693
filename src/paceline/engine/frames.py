"""Frames on a byte stream: a little-endian u32 length, then one msgpack value.

The one idea: both ends of the engine's boundary read and write the same bytes with the same bound, so a corrupt or
hostile length can cost at most `MAX_FRAME_BYTES`. It knows nothing of what a frame means, of sockets or of asyncio.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from paceline.engine.messages import MAX_FRAME_BYTES, Command, Report
from paceline.errors import EngineError

_LENGTH = struct.Struct("<I")

_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_reports: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def encode_frame(message: Command | Report) -> bytes:
    """One message as the bytes of its frame. Errors: EngineError when it is longer than `MAX_FRAME_BYTES`."""
    payload = _encoder.encode(message)
    if len(payload) > MAX_FRAME_BYTES:
        raise EngineError(f"A message of {len(payload)} bytes does not fit a frame; the limit is {MAX_FRAME_BYTES}.")
    return _LENGTH.pack(len(payload)) + payload


def decode_command(payload: bytes) -> Command:
    """A frame's payload as a command. Errors: EngineError when it is none."""
    try:
        return _commands.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise EngineError(f"The engine received a frame that is no command: {error}") from error


def decode_report(payload: bytes) -> Report:
    """A frame's payload as a report. Errors: EngineError when it is none."""
    try:
        return _reports.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise EngineError(f"The engine sent a frame that is no report: {error}") from error


class FrameReader:
    """Cuts a byte stream into payloads, however the bytes arrive; holds at most one unfinished frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take more bytes and give every payload that is now whole. Errors: EngineError for a length over the bound."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, start)
                if length > MAX_FRAME_BYTES:
                    raise EngineError(f"A frame claims {length} bytes; the limit is {MAX_FRAME_BYTES}.")
                end = start + _LENGTH.size + length
                if len(buffer) < end:
                    return
                payload = bytes(buffer[start + _LENGTH.size : end])
                start = end
                yield payload
        finally:
            del buffer[:start]
