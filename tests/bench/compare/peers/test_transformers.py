"""transformers' driver runs the real thing on a tiny file and says that its weights are bfloat16."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.bench.compare.peers.transformers import DRIVER, Transformers
from paceline.bench.compare.workloads import WORKLOADS


class CountingModel:
    """Counts the forward passes and how many tokens each had."""

    def __init__(self) -> None:
        self.config = type("Config", (), {"vocab_size": 7})
        self.calls: list[tuple[int, ...]] = []

    def __call__(self, token_ids: torch.Tensor, **settings: object) -> Any:
        self.calls.append(tuple(token_ids.shape))
        logits = torch.zeros(token_ids.shape[0], 1, 7)
        return type("Output", (), {"logits": logits, "past_key_values": None})


@pytest.fixture(scope="module")
def driver() -> Any:
    spec = importlib.util.spec_from_file_location("driver_under_test", DRIVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("kind", "num_calls"), [("decode", 1 + 4), ("chats", 4)])
def test_each_stream_gets_its_tokens(driver: Any, kind: str, num_calls: int) -> None:
    model = CountingModel()
    assert driver.run(model, {"kind": kind, "streams": 3, "prompt_tokens": 5, "new_tokens": 4}) > 0
    assert model.calls == [(3, 5)] + [(3, 1)] * (num_calls - 1)


def test_file_is_labelled_by_what_it_becomes(tmp_path: Path) -> None:
    assert "bfloat16" in Transformers(tmp_path).file_for(tmp_path / "m.gguf", WORKLOADS["decode1"]).label
