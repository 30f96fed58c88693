"""Our side runs each workload's tokens, and nothing else is timed as one."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from paceline.bench.compare.child import Reply
from paceline.bench.compare.ours import Sides, answer, pick_step, run_chats, run_workload
from paceline.bench.compare.workloads import Workload
from paceline.config import EngineConfig
from paceline.errors import ContextLengthError, EngineError
from tests.generators.tiny_models import tiny_gguf


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    config = EngineConfig(backend="native", threads=1, num_blocks=64, max_num_batched_tokens=16, enable_prefix_caching=False)
    found = Sides(tiny_gguf(tmp_path / "tiny.gguf", "llama"), config)
    yield found
    found.close()


def workload(kind: str, *, streams: int = 1, prompt_tokens: int = 20, new_tokens: int = 3) -> Workload:
    return msgspec.convert(
        {"name": "w", "kind": kind, "streams": streams, "prompt_tokens": prompt_tokens, "new_tokens": new_tokens}, Workload
    )


@pytest.mark.parametrize("kind", ["decode", "prefill", "chats", "verify"])
def test_every_kind_takes_some_time_again_and_again(sides: Sides, kind: str) -> None:
    rng = random.Random(1)
    assert all(run_workload(sides, workload(kind, streams=2), rng) > 0 for _ in range(2))


def test_engine_is_left_empty_after_a_decode_run(sides: Sides) -> None:
    run_workload(sides, workload("decode", streams=3), random.Random(1))
    assert not sides.engine().has_work()
    assert sides.engine().stats().num_blocks_used == 0


def test_chats_that_do_not_fit_are_an_error(sides: Sides) -> None:
    engine = sides.engine()
    with pytest.raises(ContextLengthError):
        run_chats(engine, workload("chats", prompt_tokens=engine.info.max_model_len + 1), random.Random(1))


def test_http_is_not_for_the_driver(sides: Sides) -> None:
    with pytest.raises(EngineError, match="server"):
        run_workload(sides, workload("http"), random.Random(1))


def test_verify_step_has_a_pick_for_each_of_its_rows() -> None:
    step = pick_step(list(range(40)), 17, 22)
    assert step.row_indices.tolist() == [0, 1, 2, 3, 4]
    assert step.positions.tolist() == [17, 18, 19, 20, 21]
    assert not step.needs_logits


def test_each_request_gets_one_line_and_an_error_does_not_end_the_talk() -> None:
    def measure(asked: Workload) -> list[float]:
        if asked.streams == 2:
            raise EngineError("no room")
        return [0.5]

    replies = io.BytesIO()
    answer(iter([msgspec.json.encode(workload("chats", streams=streams)) for streams in (1, 2, 3)]), replies, measure)
    said = [msgspec.json.decode(line, type=Reply) for line in replies.getvalue().splitlines()]
    assert said == [Reply(), Reply([0.5]), Reply(error="no room"), Reply([0.5])]
