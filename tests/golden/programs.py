"""The golden program texts: what the recorder makes of each family's tiny model. Run this file to write them anew.

The one idea: a change of the forward pass, the recorder or its passes shows in review as a diff of these texts.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from paceline.backends.native.arena import place
from paceline.backends.native.recorder import record
from paceline.formats.open import open_checkpoint
from paceline.formats.types import TensorType
from paceline.models.load import load_model
from tests.generators.tiny_models import tiny_gguf

FAMILIES = ("llama", "qwen2", "gemma3")
FOLDER = Path(__file__).parent


def program_text(family: str) -> str:
    """The text of a family's tiny model with Q4_0 layers, barriers as for 64 tokens and 8 rows."""
    with tempfile.TemporaryDirectory() as folder:
        model = load_model(open_checkpoint(tiny_gguf(Path(folder) / "tiny.gguf", family, tensor_type=TensorType.Q4_0)))
        program = record(model.spec, model.weights)
    return program.render(place(program, 64, 8).barriers)


def golden_path(family: str) -> Path:
    """Where a family's text lies."""
    return FOLDER / f"{family}.program.txt"


if __name__ == "__main__":
    for name in FAMILIES:
        golden_path(name).write_text(program_text(name))
