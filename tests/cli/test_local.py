"""A model in this process: pieces of text, and Ctrl-C that ends an answer and nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.cli.local import LocalModel
from paceline.config import EngineConfig
from paceline.sampling.params import SamplingParams
from tests.generators.tiny_models import tiny_gguf

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalModel]:
    path: Path = tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "llama")
    made = LocalModel(path, EngineConfig())
    yield made
    made.close()


def test_an_interrupted_answer_ends_and_the_next_is_whole(model: LocalModel) -> None:
    before = signal.getsignal(signal.SIGINT)
    prompt_ids = model.chat_ids([("user", "hi")])
    whole = "".join(model.answer(prompt_ids, GREEDY))
    endless = SamplingParams(temperature=0.0, ignore_eos=True)
    pieces = model.answer(prompt_ids, endless)
    begun = [next(pieces) for _ in range(3)]
    os.kill(os.getpid(), signal.SIGINT)
    assert "".join([*begun, *pieces]).startswith(whole[:2])
    assert model.was_interrupted
    assert "".join(model.answer(prompt_ids, GREEDY)) == whole
    assert not model.was_interrupted
    assert signal.getsignal(signal.SIGINT) is before


def test_the_end_token_is_no_part_of_the_text(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text("[[5, 6]]")
    path: Path = tiny_gguf(tmp_path / "tiny.gguf", "llama")
    params = SamplingParams(skip_special_tokens=False)
    model = LocalModel(path, EngineConfig(backend="scripted", script=str(script)))
    said = "".join(model.answer(model.text_ids("the "), params))
    model.close()
    assert len(said) == 2, "two letters, and no mark"


def test_an_answer_left_half_way_frees_its_place(model: LocalModel) -> None:
    prompt_ids = model.text_ids("the ")
    pieces = model.answer(prompt_ids, GREEDY)
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]  # it is a generator
    assert "".join(model.answer(prompt_ids, GREEDY))
