"""The HTTP workload is run against a server of its own, and an answer that is cut short is no result."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest

from paceline.bench.compare.servers import ServerRunner, check_row
from paceline.bench.compare.workloads import Workload
from paceline.bench.serve import LoadRow
from paceline.errors import EngineError

CHATS = Workload("few", "http", streams=2, prompt_tokens=40, new_tokens=4)


def row(*, errors: int = 0, output_tokens: int = 8) -> LoadRow:
    return LoadRow(2, 2, errors, 1.0, 1.0, None, None, None, None, None, output_tokens, 1.0, "broken" if errors else None)


def test_chats_of_a_real_server_are_timed(smollm2_path: Path) -> None:
    def command(port: int) -> list[str | Path]:
        return [sys.executable, "-m", "paceline.cli.main", "serve", smollm2_path, "--port", str(port), "--num-blocks", "64"]

    with closing(ServerRunner(command, "paceline serve")) as runner:
        (seconds,) = runner.measure(CHATS)
    assert 0 < seconds < 60


def test_server_that_ends_instead_of_getting_ready_says_why() -> None:
    with pytest.raises(EngineError, match="no weights"):
        ServerRunner(lambda port: [sys.executable, "-c", "import sys; sys.exit('no weights')"], "a server")


def test_whole_answers_pass() -> None:
    check_row(row(), CHATS)


def test_failed_or_short_answers_are_refused() -> None:
    with pytest.raises(EngineError, match=r"1 of 2 chats failed\. broken"):
        check_row(row(errors=1), CHATS)
    with pytest.raises(EngineError, match="hold 7 tokens; expected 8"):
        check_row(row(output_tokens=7), CHATS)
