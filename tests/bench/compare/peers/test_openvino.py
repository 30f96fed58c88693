"""OpenVINO reads the same file where its reader can; its driver times only what the workload names."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from paceline.bench.compare.peers.llama_cpp import LlamaCpp
from paceline.bench.compare.peers.openvino import DRIVER, OpenVino
from paceline.bench.compare.workloads import WORKLOADS
from paceline.errors import PacelineError
from paceline.formats.types import TensorType
from tests.generators.tiny_models import tiny_gguf

Q8_0, Q5_0 = TensorType.Q8_0, TensorType.Q5_0


class Pipeline:
    """A pipeline that computes all prompts in `prompt_steps` steps and then a token of each stream a step."""

    def __init__(self, prompt_steps: int = 1, missing: int = 0) -> None:
        self.prompt_steps, self.missing = prompt_steps, missing
        self.prompts: list[Any] = []
        self.steps_left = 0

    def add_request(self, number: int, prompt: Any, config: Any) -> Any:
        self.prompts.append(prompt)
        self.steps_left = self.prompt_steps - 1 + config.max_new_tokens
        return SimpleNamespace(read_all=lambda: [SimpleNamespace(generated_ids=range(config.max_new_tokens - self.missing))])

    def has_non_finished_requests(self) -> bool:
        return self.steps_left > 0

    def step(self) -> None:
        self.steps_left -= 1


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    openvino, genai = ModuleType("openvino"), ModuleType("openvino_genai")
    openvino.Tensor = list  # type: ignore[attr-defined]
    genai.GenerationConfig = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openvino", openvino)
    monkeypatch.setitem(sys.modules, "openvino_genai", genai)
    spec = importlib.util.spec_from_file_location("driver_under_test", DRIVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_decode_does_not_time_the_step_of_the_prompts(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 5.0, 5.5, 6.0, 6.5])
    monkeypatch.setattr(driver.time, "monotonic", lambda: next(moments))
    workload = {"kind": "decode", "streams": 2, "prompt_tokens": 8, "new_tokens": 3}
    assert driver.run(Pipeline(), workload, random.Random(0)) == 1.5


def test_chats_time_everything(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 5.0, 5.5, 6.0])
    monkeypatch.setattr(driver.time, "monotonic", lambda: next(moments))
    assert driver.run(Pipeline(), {"kind": "chats", "streams": 2, "prompt_tokens": 8, "new_tokens": 3}, random.Random(0)) == 6.0


def test_prompts_differ_and_have_the_asked_length(driver: Any) -> None:
    pipeline = Pipeline()
    driver.run(pipeline, {"kind": "chats", "streams": 3, "prompt_tokens": 8, "new_tokens": 1}, random.Random(0))
    assert len({tuple(prompt[0].tolist()) for prompt in pipeline.prompts}) == 3
    assert {len(prompt[0]) for prompt in pipeline.prompts} == {8}


def test_decode_whose_prompts_took_several_steps_is_refused(driver: Any) -> None:
    with pytest.raises(ValueError, match="5 steps; expected one for the prompts and 3 more"):
        driver.run(Pipeline(prompt_steps=2), {"kind": "decode", "streams": 2, "prompt_tokens": 8, "new_tokens": 3}, random.Random(0))


def test_short_answer_is_refused(driver: Any) -> None:
    with pytest.raises(ValueError, match="expected 3 each"):
        driver.run(Pipeline(missing=1), {"kind": "chats", "streams": 1, "prompt_tokens": 8, "new_tokens": 3}, random.Random(0))


def test_file_of_known_types_is_read_as_it_is(tmp_path: Path) -> None:
    model = tiny_gguf(tmp_path / "tiny.gguf", "llama", tensor_type=Q8_0)
    file = OpenVino(tmp_path / "ov", LlamaCpp(tmp_path / "none")).file_for(model, WORKLOADS["chats16"])
    assert (file.path, file.label) == (model, "the same file")


def test_file_with_a_type_it_refuses_is_requantised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: LlamaCpp) -> None:
        raise PacelineError("the quantiser is asked for")

    monkeypatch.setattr(LlamaCpp, "install", refuse)
    model = tiny_gguf(tmp_path / "tiny.gguf", "llama", tensor_type=Q5_0)
    with pytest.raises(PacelineError, match="the quantiser is asked for"):
        OpenVino(tmp_path / "ov", LlamaCpp(tmp_path / "none")).file_for(model, WORKLOADS["chats16"])
