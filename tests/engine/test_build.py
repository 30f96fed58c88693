"""From config and path to an engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.config import EngineConfig
from paceline.engine.build import Parts, build_engine, resolve_sizes
from paceline.engine.messages import Event, Finished, Tokens
from paceline.errors import ModelError, NotFoundError, RequestError
from paceline.formats.open import open_checkpoint
from paceline.planner.machine import Machine
from tests.engine.null_engine import request_of
from tests.generators.tiny_models import tiny_gguf


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama."""
    return tiny_gguf(tmp_path_factory.mktemp("build") / "tiny.gguf", "llama")


@pytest.mark.parametrize("backend", ["native", "reference", "null", "hash"])
def test_every_backend_makes_an_engine(tiny_path: Path, backend: str) -> None:
    stages: list[tuple[str, float]] = []
    engine = build_engine(EngineConfig(backend=backend, threads=1, num_blocks=40), tiny_path, lambda *stage: stages.append(stage))
    info = engine.info
    assert info.backend.startswith(backend)
    assert (info.model_name, info.family, info.max_model_len, info.num_blocks) == ("tiny", "llama", 39 * 16, 40)
    assert stages
    engine.submit(request_of("a", max_tokens=3))
    events: list[Event] = []
    while engine.has_work():
        events += engine.step()
    assert sum(len(event.token_ids) for event in events if isinstance(event, Tokens)) == 3
    engine.close()
    engine.close()


def test_a_script_is_said_and_ended_by_the_models_own_end_token(tiny_path: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([[70, 71]]))
    engine = build_engine(EngineConfig(backend="scripted", script=str(script)), tiny_path)
    eos_ids = Parts(open_checkpoint(tiny_path), has_weights=False).vocabulary().eos_ids
    engine.submit(request_of("a", eos_ids=eos_ids))
    events: list[Event] = []
    while engine.has_work():
        events += engine.step()
    assert [event.token_ids for event in events if isinstance(event, Tokens)] == [[70], [71], [eos_ids[0]]]
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "stop"


def test_a_stop_string_is_matched_over_the_models_bytes(tiny_path: Path, tmp_path: Path) -> None:
    vocabulary = Parts(open_checkpoint(tiny_path), has_weights=False).vocabulary()
    ids = {vocabulary.token_bytes(token_id): token_id for token_id in range(len(vocabulary))}
    script = tmp_path / "script.json"
    script.write_text(json.dumps([[ids[letter] for letter in (b"x", b"h", b"i", b"y")]]))
    engine = build_engine(EngineConfig(backend="scripted", script=str(script)), tiny_path)
    engine.submit(request_of("a", stop=("hi",)))
    events: list[Event] = []
    while engine.has_work():
        events += engine.step()
    assert isinstance(events[-1], Finished)
    assert (events[-1].stop_reason, events[-1].num_tokens) == ("hi", 3)


def test_auto_sizes_say_why(tiny_path: Path) -> None:
    parts = Parts(open_checkpoint(tiny_path), has_weights=True)
    machine = Machine(num_cores=3, memory_bytes=1 << 30)
    sizes = resolve_sizes(EngineConfig(max_num_seqs=200), parts.spec, parts.model, machine)
    assert (sizes.threads, sizes.max_num_batched_tokens, sizes.max_model_len) == (3, 400, 2048)
    assert [note.split("=")[0] for note in sizes.notes] == [
        "threads",
        "kv_cache_dtype",
        "max_num_batched_tokens",
        "num_blocks",
        "max_model_len",
    ]
    given = EngineConfig(threads=1, max_num_batched_tokens=64, num_blocks=20, max_model_len=128, kv_cache_dtype="int16")
    assert resolve_sizes(given, parts.spec, parts.model, machine).notes == ()


def test_a_model_that_does_not_fit_is_refused(tiny_path: Path) -> None:
    parts = Parts(open_checkpoint(tiny_path), has_weights=True)
    with pytest.raises(ModelError, match="does not fit"):
        resolve_sizes(EngineConfig(), parts.spec, parts.model, Machine(num_cores=1, memory_bytes=1 << 10))


def test_a_path_that_is_not_there_and_a_script_that_is_not_named_are_refused(tiny_path: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        build_engine(EngineConfig(), tmp_path / "none.gguf")
    with pytest.raises(RequestError, match="expected `script`"):
        build_engine(EngineConfig(backend="scripted"), tiny_path)
