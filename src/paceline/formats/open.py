"""Open whatever a path names: a GGUF file, a shard of one, or a model folder.

The one idea: the caller has a path and wants a `Checkpoint`; which container it is, is decided here and nowhere else.

It does not resolve model names: that is `paceline.formats.pull.resolve`.
"""

from __future__ import annotations

from pathlib import Path

from paceline.errors import ModelError, NotFoundError
from paceline.formats.checkpoint import Checkpoint
from paceline.formats.gguf import GgufCheckpoint, shard_paths
from paceline.formats.safetensors import CONFIG, INDEX, SINGLE, SafetensorsCheckpoint

EXPECTED = f"expected a GGUF file, or a folder with one GGUF model or with `{CONFIG}` and `{SINGLE}` (or `{INDEX}`)"


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint at `path`.

    Errors:  NotFoundError when nothing is there; ModelError when it is no model, or a broken one
    """
    try:
        if path.is_dir():
            return _open_folder(path)
        if not path.exists():
            raise NotFoundError(f"There is no file or folder `{path}`.", param="model")
    except OSError as error:
        raise ModelError(f"cannot be read ({error.strerror})", path=path) from None
    if path.suffix == ".safetensors":
        raise ModelError("a safetensors file alone is not a model; name its folder", path=path)
    return GgufCheckpoint(path)


def _open_folder(folder: Path) -> Checkpoint:
    names = {entry.name for entry in folder.iterdir()}
    if CONFIG in names and (SINGLE in names or INDEX in names):
        return SafetensorsCheckpoint(folder)
    firsts = sorted({shard_paths(folder / name)[0] for name in names if name.endswith(".gguf")})
    if len(firsts) == 1:
        return GgufCheckpoint(firsts[0])
    if firsts:
        listed = ", ".join(f"`{path.name}`" for path in firsts[:8])
        raise ModelError(f"the folder holds {len(firsts)} GGUF models ({listed}); name one of them", path=folder)
    if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        raise ModelError(f"{EXPECTED}.\nPickled weights are never opened: convert them to safetensors", path=folder)
    raise ModelError(EXPECTED, path=folder)
