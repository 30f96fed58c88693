"""The commands as a person types them: data on stdout, everything else on stderr, honest exit codes."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from paceline.cli.main import COMMANDS, main
from paceline.cli.models import size_words
from tests.contract.live_server import command, environment
from tests.generators.tiny_models import tiny_gguf

LIGHT_S = 0.15
HEAVY = ("numpy", "tokenizers", "starlette", "uvicorn", "asyncio", "jinja2", "rich", "msgspec")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "llama"))


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize("name", ["serve", "chat", "run", "pull", "list", "inspect", "bench"])
def test_each_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    assert "usage: paceline" in capsys.readouterr().out


def test_help_is_there_at_once() -> None:
    process = subprocess.Popen(
        command("--help"), env=environment(PYTHONPROFILEIMPORTTIME="1"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    with process.stderr as stderr:
        imported = {line.rsplit(b"|", 1)[1].strip().decode() for line in stderr if line.startswith(b"import time:")}
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert not imported & set(HEAVY)
    assert usage.ru_utime + usage.ru_stime < LIGHT_S


def test_an_unknown_command_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["srve"]) == 2
    assert "`srve` is no command" in capsys.readouterr().err


def test_run_prints_the_answer_and_nothing_else(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", tiny, "Hello", "--max-tokens", "8", "--seed", "3"]
    assert main(words) == 0
    first = capsys.readouterr()
    assert main(words) == 0
    assert capsys.readouterr().out == first.out
    assert first.out.endswith("\n")
    assert len(first.out) > 1
    assert first.err == ""


def test_run_raw_takes_the_prompt_from_stdin(tiny: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("the "))
    assert main(["run", tiny, "-", "--raw", "--max-tokens", "4", "--temperature", "0"]) == 0
    from_stdin = capsys.readouterr().out
    assert main(["run", tiny, "the ", "--raw", "--max-tokens", "4", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == from_stdin


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["run", "{tiny}", "x", "--top-p", "3"], 2, "top_p"),
        (["run", "{tiny}", "x", "--max-num-seqs", "0"], 2, "max_num_seqs"),
        (["run", "{tiny}", "x" * 5000], 2, "2048"),
        (["run", "no-such-model", "x"], 2, "no-such-model"),
        (["inspect", "/etc/hostname"], 1, "/etc/hostname"),
        (["chat", "{tiny}", "--temperature", "-1"], 2, "temperature"),
        (["serve", "", "--port", "0"], 2, "There is no model"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_code(
    tiny: str, words: list[str], code: int, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.format(tiny=tiny) for word in words]) == code
    shown = capsys.readouterr()
    assert shown.err.startswith("paceline: ")
    assert what in shown.err
    assert shown.out == ""


def test_a_piped_chat_answers_each_line_and_remembers_until_reset(
    tiny: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(*lines: str) -> list[str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))
        assert main(["chat", tiny, "--max-tokens", "4", "--temperature", "0"]) == 0
        return capsys.readouterr().out.split("\n")[:-1]

    assert len(answers("one", "", "two", "/exit", "three")) == 2
    alone = answers("two")
    assert answers("one", "/reset", "two")[1:] == alone


def test_a_chat_over_the_context_says_how_to_go_on(tiny: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a" * 3000 + "\nhi\n"))
    assert main(["chat", tiny, "--max-tokens", "2"]) == 0
    shown = capsys.readouterr()
    assert "/reset makes room" in shown.err
    assert len(shown.out.splitlines()) >= 1


def test_inspect_says_what_the_file_holds(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", tiny, "--kernels"]) == 0
    lines = capsys.readouterr().out.splitlines()
    facts = {line.split()[0] for line in lines}
    assert facts >= {"file", "family", "vocabulary", "width", "context", "layers", "weights", "tensors", "tokenizer", "template", "kernels"}
    assert sum("*" in line for line in lines if line.startswith("kernels")) == 1


def test_inspect_prints_the_native_program(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", tiny, "--program"]) == 0
    program = capsys.readouterr().out
    assert "embed(token_ids)" in program
    assert "attention(" in program


def test_list_has_what_is_here_and_the_catalog(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    (tmp_path / "models").mkdir()
    tiny_gguf(tmp_path / "models" / "mine.gguf", "llama")
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "mine.gguf"
    assert "here" in lines[0]
    assert next(line.split()[0] for line in lines if " catalog " in line) == "smollm2:135m"


def test_pull_of_what_is_here_prints_its_path(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "smollm2:135m"]) == 0
    assert capsys.readouterr().out.strip() == str(smollm2_path)


def test_a_reader_that_closes_the_pipe_early_is_no_error(tiny: str) -> None:
    words = command("inspect", tiny, "--program")
    process = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as stderr:
        assert stderr.read() == ""
    assert process.wait(30) == 1


@pytest.mark.parametrize("words", [["list"], ["inspect", "{tiny}"], ["run", "{tiny}", "x", "--max-tokens", "2"]])
def test_an_output_that_is_full_is_one_line(tiny: str, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(*[word.format(tiny=tiny) for word in words]), env=environment(), stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (1, "paceline: No space left on device.\n")


@pytest.mark.parametrize("words", [["chat", "{tiny}"], ["run", "{tiny}", "-", "--max-tokens", "2"]])
def test_a_stdin_that_was_closed_is_empty(tiny: str, words: list[str]) -> None:
    line = shlex.join(command(*[word.format(tiny=tiny) for word in words])) + " <&-"
    done = subprocess.run(line, shell=True, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_text_that_is_no_utf8_is_said_whatever_the_locale(tiny: str) -> None:
    words = command("run", tiny, "-", "--max-tokens", "2")
    done = subprocess.run(words, env=environment(PYTHONIOENCODING="utf-8:strict"), input=b"a\xff", capture_output=True)
    assert done.returncode == 2
    assert done.stderr == b"paceline: The text has a lone surrogate at character 1; expected valid Unicode.\n"


def test_an_answer_that_the_locale_cannot_show_is_printed_all_the_same(smollm2_path: Path) -> None:
    words = command("run", str(smollm2_path), "日本", "--raw", "--temperature", "0", "--max-tokens", "8")
    done = subprocess.run(words, env=environment(PYTHONIOENCODING="ascii"), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "?" in done.stdout


@pytest.mark.parametrize(
    ("num_bytes", "words"), [(0, "0 B"), (999, "999 B"), (98_362_432, "98.4 MB"), (1_117_320_768, "1.12 GB"), (5e15, "5e+03 TB")]
)
def test_sizes_are_said_in_three_digits(num_bytes: float, words: str) -> None:
    assert size_words(num_bytes) == words
