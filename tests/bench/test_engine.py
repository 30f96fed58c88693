"""The engine benchmark counts what its docstring says it counts."""

from __future__ import annotations

import pytest

from paceline.backends.base import PoolShape
from paceline.backends.null import NullBackend
from paceline.backends.simulated import HashBackend
from paceline.bench.engine import EngineLoad, run_engine_load
from paceline.config import EngineConfig
from paceline.engine.build import assemble_engine
from paceline.engine.core import Engine
from paceline.engine.messages import EngineInfo
from paceline.errors import ContextLengthError, RequestError

VOCAB_SIZE = 97


def engine(*, hashing: bool = False, num_blocks: int = 200, budget: int = 32, max_model_len: int = 256) -> Engine:
    pool = PoolShape(num_blocks, max_model_len // 16)
    backend = HashBackend(VOCAB_SIZE, pool) if hashing else NullBackend(VOCAB_SIZE)
    info = EngineInfo(
        model_name="m",
        family="f",
        backend=backend.name,
        vocab_size=VOCAB_SIZE,
        max_model_len=max_model_len,
        num_blocks=num_blocks,
        block_size=16,
        max_num_seqs=8,
        max_num_batched_tokens=budget,
        threads=1,
        load_s=0.0,
    )
    config = EngineConfig(max_num_seqs=8, enable_prefix_caching=False)
    return assemble_engine(config, backend, info, model_digest="d", token_bytes=lambda token_id, skip: b"x")


def test_one_row_per_batch_with_its_rates() -> None:
    rows = run_engine_load(engine(hashing=True), EngineLoad(prompt_tokens=40, gen_tokens=6, batches=(1, 3), repeat=2))
    assert [row.batch for row in rows] == [1, 3]
    for row in rows:
        assert row.prefill_tokens_per_s > 0
        assert row.decode_tokens_per_s > 0
        assert 0 < row.step_ms_p50 <= row.step_ms_p99
        assert 0 < row.ttft_ms_p50 <= row.ttft_ms_p99
        assert row.preemptions == 0


def test_engine_is_left_empty() -> None:
    measured = engine()
    run_engine_load(measured, EngineLoad(prompt_tokens=40, gen_tokens=6, batches=(4,), repeat=1))
    assert not measured.has_work()
    assert measured.stats().num_blocks_used == 0


def test_preemptions_are_reported() -> None:
    tight = engine(num_blocks=13)
    rows = run_engine_load(tight, EngineLoad(prompt_tokens=34, gen_tokens=20, batches=(4,), repeat=1))
    assert rows[0].preemptions > 0


def test_load_that_does_not_fit_the_context_is_refused() -> None:
    with pytest.raises(ContextLengthError):
        run_engine_load(engine(max_model_len=64), EngineLoad(prompt_tokens=60, gen_tokens=20, batches=(1,), repeat=1))


@pytest.mark.parametrize(("fields", "param"), [((0, 1, (1,), 1), "prompt_tokens"), ((1, 1, (0, 2), 1), "batch"), ((1, 1, (), 1), "batch")])
def test_load_without_work_is_refused(fields: tuple[int, int, tuple[int, ...], int], param: str) -> None:
    with pytest.raises(RequestError) as refused:
        EngineLoad(*fields)
    assert refused.value.param == param
