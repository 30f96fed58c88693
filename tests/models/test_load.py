"""The default model's file → a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.errors import ModelError
from paceline.formats.open import open_checkpoint
from paceline.formats.types import TensorType
from paceline.models.families import FAMILIES, Family, find_family
from paceline.models.load import load_model, read_spec
from paceline.models.spec import RopeSpec
from tests.generators.tiny_models import tiny_model
from tests.models.memory_checkpoint import gguf_checkpoint


def test_smollm2_is_read_as_published(smollm2_path: Path) -> None:
    spec = read_spec(open_checkpoint(smollm2_path))
    attention = spec.layers[0].mixer
    assert (spec.family, spec.vocab_size, spec.width, len(spec.layers), spec.tied_head) == ("llama", 49152, 576, 30, True)
    assert (attention.num_heads, attention.num_kv_heads, attention.head_dim) == (9, 3, 64)
    assert attention.rope == RopeSpec(64, 100_000.0)
    assert spec.layers[0].feed_forward.width == 1536


def test_smollm2_is_loaded_without_copying_its_weights(smollm2_path: Path) -> None:
    checkpoint = open_checkpoint(smollm2_path)
    model = load_model(checkpoint)
    layer = model.weights.layers[7]
    assert np.shares_memory(layer.down.parts[0].data, checkpoint.tensor("blk.7.ffn_down.weight").data)
    assert np.shares_memory(model.weights.head.parts[0].data, checkpoint.tensor("token_embd.weight").data)
    assert layer.qkv.parts[0].type is TensorType.Q4_1
    assert model.digest == checkpoint.digest()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_loads_from_its_own_name(family: Family) -> None:
    checkpoint = gguf_checkpoint(tiny_model(family.name))
    assert find_family(checkpoint) is family
    assert load_model(checkpoint).spec.family == checkpoint.metadata["general.architecture"]


def test_architecture_that_is_no_string_is_refused() -> None:
    with pytest.raises(ModelError, match="is not supported"):
        find_family(gguf_checkpoint(tiny_model("llama")).having(general__architecture=7))
