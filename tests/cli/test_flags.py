"""Flags are the config's fields: names, kinds, defaults, files, and what other servers call them."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

import pytest

from paceline.cli.compatibility import add_foreign_flags, foreign_notes
from paceline.cli.flags import add_config_flags, config_from, read_config_file
from paceline.config import EngineConfig, ServeConfig
from paceline.errors import RequestError


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_config_flags(parser, EngineConfig)
    add_config_flags(parser, ServeConfig)
    add_foreign_flags(parser)
    return parser.parse_args(words)


def test_without_flags_every_field_keeps_its_default() -> None:
    assert config_from(parse(), EngineConfig) == EngineConfig()
    assert config_from(parse(), ServeConfig) == ServeConfig()


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (("--max-num-seqs", "8"), "max_num_seqs", 8),
        (("--memory-utilization", "0.5"), "memory_utilization", 0.5),
        (("--gpu-memory-utilization", "0.92"), "memory_utilization", 0.92),
        (("--no-enable-prefix-caching",), "enable_prefix_caching", False),
        (("--enable-prefix-caching",), "enable_prefix_caching", True),
        (("--threads", "2"), "threads", 2),
        (("--backend", "null"), "backend", "null"),
    ],
)
def test_a_flag_sets_its_field(words: tuple[str, ...], field: str, value: object) -> None:
    assert getattr(config_from(parse(*words), EngineConfig), field) == value


def test_a_list_of_names_is_a_tuple() -> None:
    assert config_from(parse("--served-model-name", "a", "b"), ServeConfig).served_model_name == ("a", "b")


def test_every_field_has_a_flag_with_help() -> None:
    parser = argparse.ArgumentParser()
    add_config_flags(parser, EngineConfig)
    words = parser.format_help()
    for field in fields(EngineConfig):
        assert "--" + field.name.replace("_", "-") in words
        assert field.metadata["help"]


@pytest.mark.parametrize("words", [("--max-num-seqs", "0"), ("--port", "70000"), ("--memory-utilization", "2")])
def test_a_value_out_of_limits_names_the_field(words: tuple[str, ...]) -> None:
    name = words[0].removeprefix("--").replace("-", "_")
    with pytest.raises(RequestError) as caught:
        config_from(parse(*words), ServeConfig if name == "port" else EngineConfig)
    assert caught.value.param == name


def test_a_files_values_stand_between_defaults_and_flags(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text('max-num-seqs = 4\ngpu_memory_utilization = 0.3\nport = 9\nserved-model-name = ["a"]\n')
    filed = read_config_file(str(path), EngineConfig, ServeConfig)
    engine = config_from(parse("--max-num-seqs", "5"), EngineConfig, filed)
    serve = config_from(parse(), ServeConfig, filed)
    assert (engine.max_num_seqs, engine.memory_utilization, serve.port, serve.served_model_name) == (5, 0.3, 9, ("a",))


@pytest.mark.parametrize("text", ["max-num-seq = 4", "port = ", "\x00", 'port = "high"', "port = true", "served-model-name = [1]"])
def test_a_file_with_an_unknown_name_or_a_wrong_kind_of_value_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(text)
    with pytest.raises(RequestError, match=r"serve\.toml"):
        read_config_file(str(path), EngineConfig, ServeConfig)


def test_foreign_flags_that_ask_for_what_is_so_make_a_note_each() -> None:
    notes = foreign_notes(parse("--tensor-parallel-size", "1", "--dtype", "bfloat16", "--trust-remote-code"))
    assert [note.split("`")[1] for note in notes] == ["--tensor-parallel-size 1", "--dtype bfloat16", "--trust-remote-code"]


@pytest.mark.parametrize(
    "words",
    [
        ("--tensor-parallel-size", "2"),
        ("--dtype", "float64"),
        ("--quantization", "awq"),
        ("--speculative-model", "x"),
        ("--enable-speculative-decoding",),
    ],
)
def test_foreign_flags_that_ask_for_more_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(RequestError, match="not supported yet") as caught:
        foreign_notes(parse(*words))
    assert caught.value.param == words[0]
