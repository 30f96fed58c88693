"""A checkpoint → a model: its spec, its weights, and the digest that names its content."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.formats.checkpoint import Checkpoint
from paceline.models.config_spec import spec_from_config
from paceline.models.families import Family, find_family
from paceline.models.gguf_spec import spec_from_gguf
from paceline.models.spec import ModelSpec
from paceline.models.weights import ModelWeights, load_weights


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """What a backend needs to run a model; `digest` is part of the key of every cache made from it."""

    spec: ModelSpec
    weights: ModelWeights
    digest: str


def load_model(checkpoint: Checkpoint) -> Model:
    """The model in a checkpoint. Errors: ModelError when it cannot be served as it is"""
    family = find_family(checkpoint)
    spec = read_spec(checkpoint, family)
    return Model(spec, load_weights(checkpoint, family, spec), checkpoint.digest())


def read_spec(checkpoint: Checkpoint, family: Family | None = None) -> ModelSpec:
    """The architecture alone, without its weights. Errors: ModelError"""
    family = family or find_family(checkpoint)
    return spec_from_gguf(family, checkpoint) if checkpoint.kind == "gguf" else spec_from_config(family, checkpoint)
