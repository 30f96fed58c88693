"""Frames survive any cutting of the byte stream, and a lying length ends in one error."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.engine.frames import FrameReader, decode_command, decode_report, encode_frame
from paceline.engine.messages import MAX_FRAME_BYTES, Abort, Command, EngineStats, Frame, Progress, Report, Shutdown, Tokens
from paceline.errors import EngineError

COMMANDS: list[Command] = [Abort("a"), Shutdown(), Abort("a" * 300)]
REPORTS: list[Report] = [Progress("packing", 0.5), Frame([Tokens("a", 0, [1, 2]), Tokens("b", 1, [])], EngineStats(num_running=2))]


@given(st.lists(st.integers(1, 40), max_size=60))
@settings(deadline=None)
def test_any_cutting_gives_the_same_frames(lengths: list[int]) -> None:
    data = b"".join(encode_frame(command) for command in COMMANDS)
    reader, found, start = FrameReader(), [], 0
    for length in [*lengths, len(data)]:
        found += [decode_command(payload) for payload in reader.feed(data[start : start + length])]
        start += length
    assert found == COMMANDS


def test_reports_come_back_as_they_went() -> None:
    reader = FrameReader()
    payloads = list(reader.feed(b"".join(encode_frame(report) for report in REPORTS)))
    assert [decode_report(payload) for payload in payloads] == REPORTS


def test_a_length_over_the_bound_is_refused_before_its_bytes_come() -> None:
    with pytest.raises(EngineError, match="claims"):
        list(FrameReader().feed(struct.pack("<I", MAX_FRAME_BYTES + 1)))


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x93\xa5abort", b"\x91" * 5000, b"\x92\xa7unknown\x01"])
def test_bytes_that_are_no_command_are_one_clear_error(payload: bytes) -> None:
    with pytest.raises(EngineError, match="no command"):
        decode_command(payload)
