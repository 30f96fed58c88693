"""What a request says never depends on what else runs, how its prompt was sliced, what was cached, or how many threads ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from paceline.backends.base import Backend
from paceline.formats.types import TensorType
from paceline.sampling.params import SamplingParams
from tests.engine.bench_engine import Said, Sizes, load_backend, new_engine, run, stats_of
from tests.generators.tiny_models import tiny_gguf

NUM_NEW = 35
PROMPT_TOKENS = 34
LONG_PROMPT_TOKENS = 300
"""Longer than the 256 tokens that attention sums at a time."""
GREEDY = SamplingParams(temperature=0.0, max_tokens=NUM_NEW, seed=3)
LONG_GREEDY = SamplingParams(temperature=0.0, max_tokens=8, seed=3, logprobs=1)
SEEDED = SamplingParams(temperature=0.9, top_p=0.95, top_k=40, max_tokens=NUM_NEW, seed=3)
PROCESSED = SamplingParams(
    temperature=0.7, repetition_penalty=1.2, frequency_penalty=0.5, logit_bias={5: 2.0}, logprobs=3, max_tokens=NUM_NEW, seed=3
)
PARAMS = {"greedy": GREEDY, "seeded": SEEDED, "processed": PROCESSED}
RUNS = {
    "together": Sizes(),
    "slices_of_16": Sizes(max_num_batched_tokens=16),
    "slices_of_7": Sizes(max_num_batched_tokens=7),
    "no_prefix_cache": Sizes(has_prefix_cache=False),
    "two_at_a_time": Sizes(max_num_seqs=2),
}


def prompts_of(vocab_size: int, count: int, num_tokens: int = PROMPT_TOKENS) -> list[list[int]]:
    """Random prompts."""
    rng = Random(5)
    return [[rng.randrange(3, vocab_size) for _ in range(num_tokens)] for _ in range(count)]


def alone(backend: Backend, prompts: list[list[int]], params: SamplingParams) -> list[Said]:
    """Each prompt in an engine of its own."""
    return [run(new_engine(backend), [prompt], params)[0] for prompt in prompts]


def contents(said: list[Said]) -> list[tuple[list[int], list[object]]]:
    """What must be equal: tokens and log-probabilities, to the last bit."""
    return [(one.token_ids, [*one.logprobs]) for one in said]


TINY_MODELS = {
    "reference-llama-q8_0": ("reference", "llama", TensorType.Q8_0),
    "native-llama-q4_1": ("native", "llama", TensorType.Q4_1),
    "native-qwen2-f32": ("native", "qwen2", TensorType.F32),
    "native-gemma3-q4_k": ("native", "gemma3", TensorType.Q4_K),
}


@pytest.fixture(scope="module", params=TINY_MODELS.values(), ids=list(TINY_MODELS))
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A backend with a tiny random model; Gemma 3's window of 8 tokens is shorter than every prompt."""
    kind, family, tensor_type = request.param
    path = tiny_gguf(tmp_path_factory.mktemp("tiny") / f"{family}.gguf", family, tensor_type=tensor_type)
    backend = load_backend(path, kind, threads=2)
    yield backend
    backend.close()


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_tiny_models_say_the_same_however_they_are_run(tiny: Backend, params: SamplingParams) -> None:
    prompts = prompts_of(tiny.vocab_size, 8)
    expected = contents(alone(tiny, prompts, params))
    assert len({tuple(tokens) for tokens, _ in expected}) == len(prompts), "prompts that say the same prove nothing"
    for name, sizes in RUNS.items():
        engine = new_engine(tiny, sizes)
        assert contents(run(engine, prompts, params)) == expected, name
        stats_of(engine)


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_tiny_models_say_the_same_on_a_prefix_hit(tiny: Backend, params: SamplingParams) -> None:
    prompts = prompts_of(tiny.vocab_size, 2, num_tokens=33)
    engine = new_engine(tiny)
    cold, warm = run(engine, prompts, params), run(engine, prompts, params)
    assert [one.end.timings.cached_tokens for one in cold] == [0, 0]
    assert [one.end.timings.cached_tokens for one in warm] == [32, 32]
    assert contents(warm) == contents(cold)


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_tiny_models_say_the_same_after_preemption(tiny: Backend, params: SamplingParams) -> None:
    prompts = prompts_of(tiny.vocab_size, 3)
    engine = new_engine(tiny, Sizes(num_blocks=8))
    said = run(engine, prompts, params)
    assert stats_of(engine).num_preemptions > 0
    assert contents(said) == contents(alone(tiny, prompts, params))


def test_a_long_prompt_says_the_same_in_slices_of_16_and_512(tiny: Backend) -> None:
    (prompt,) = prompts_of(tiny.vocab_size, 1, LONG_PROMPT_TOKENS)
    whole, *sliced = (run(new_engine(tiny, Sizes(max_num_batched_tokens=size)), [prompt], PROCESSED) for size in (512, 16, 100))
    assert [contents(said) for said in sliced] == [contents(whole)] * 2


@pytest.mark.parametrize("num_tokens", [15, 16, 17, 31, 32, 33])
def test_a_prefix_hit_leaves_at_least_one_token_to_compute(tiny: Backend, num_tokens: int) -> None:
    (prompt,) = prompts_of(tiny.vocab_size, 1, num_tokens)
    params = SamplingParams(temperature=0.0, max_tokens=4, seed=0, logprobs=2)
    engine = new_engine(tiny, Sizes(num_blocks=5))
    runs = [run(engine, [prompt], params)[0] for _ in range(3)]
    assert [one.end.timings.cached_tokens for one in runs] == [0, (num_tokens - 1) // 16 * 16, (num_tokens - 1) // 16 * 16]
    assert contents([runs[1]]) == contents([runs[2]]) == contents([runs[0]])


def test_smollm2_says_the_same_however_it_is_run(smollm2_path: Path) -> None:
    said_by_threads = []
    for threads in (1, 2):
        backend = load_backend(smollm2_path, "native", threads=threads)
        prompts = prompts_of(backend.vocab_size, 8)
        expected = contents(alone(backend, prompts[:3], GREEDY))
        for name, sizes in {"together": Sizes(), "slices_of_16": Sizes(max_num_batched_tokens=16)}.items():
            assert contents(run(new_engine(backend, sizes), prompts, GREEDY))[:3] == expected, name
        engine = new_engine(backend, Sizes(num_blocks=8))
        assert contents(run(engine, prompts[:3], GREEDY)) == expected, "after preemption"
        assert stats_of(engine).num_preemptions > 0
        engine = new_engine(backend)
        run(engine, prompts[:3], GREEDY)
        warm = run(engine, prompts[:3], GREEDY)
        assert [one.end.timings.cached_tokens for one in warm] == [32, 32, 32]
        assert contents(warm) == expected, "on a prefix hit"
        (long,) = prompts_of(backend.vocab_size, 1, LONG_PROMPT_TOKENS)
        whole, sliced = (run(new_engine(backend, Sizes(max_num_batched_tokens=size)), [long], LONG_GREEDY) for size in (512, 16))
        assert contents(sliced) == contents(whole), "a long prompt in slices of 512 and 16"
        said_by_threads.append(expected + contents(whole))
        backend.close()
    assert said_by_threads[0] == said_by_threads[1], "with 1 and 2 threads"
