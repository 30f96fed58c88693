"""The machine record says where a figure comes from."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import paceline
from paceline.bench.machine import commit, machine_record


def test_record_names_machine_commit_and_moment() -> None:
    record = machine_record(datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC))
    assert record.cores >= 1
    assert record.memory_gib > 0
    assert record.version == paceline.__version__
    assert record.date == "2026-01-02T03:04:05Z"
    assert record.commit is None or re.fullmatch(r"[0-9a-f]{12}\+?", record.commit)


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    assert commit(tmp_path) is None
