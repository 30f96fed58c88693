"""A peer's folder is either whole or made anew, by one process at a time, and nothing of a failed try counts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paceline.bench.compare.peers import install
from paceline.bench.compare.peers.install import ensure_installed, locked, make_environment, peer_folder, peer_python, run_build
from paceline.errors import CapacityError, EngineError


def test_peers_lie_in_the_cache_by_name_and_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    assert peer_folder("other", "1.2") == tmp_path / "peers" / "other-1.2"


def test_whole_folder_is_not_made_again(tmp_path: Path) -> None:
    made: list[Path] = []
    for _ in range(2):
        ensure_installed(tmp_path / "peers" / "other-1", ["pkg==1"], made.append)
    assert made == [tmp_path / "peers" / "other-1"]


def test_folder_of_another_recipe_is_made_anew(tmp_path: Path) -> None:
    made: list[Path] = []
    for recipe in (["pkg==1"], ["pkg==1", "more==2"]):
        ensure_installed(tmp_path / "other-1", recipe, made.append)
    assert len(made) == 2


def test_half_made_folder_is_thrown_away(tmp_path: Path) -> None:
    folder = tmp_path / "other-1"
    folder.mkdir()
    (folder / "rest").touch()
    ensure_installed(folder, ["pkg==1"], lambda path: (path / "program").touch())
    assert sorted(path.name for path in folder.iterdir()) == ["installed", "program"]


def test_failed_installation_says_why_and_is_tried_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise EngineError("no compiler")

    with pytest.raises(CapacityError, match=r"`other-1` could not be installed\. no compiler"):
        ensure_installed(tmp_path / "other-1", ["pkg==1"], fail)
    made: list[Path] = []
    ensure_installed(tmp_path / "other-1", ["pkg==1"], made.append)
    assert len(made) == 1


def test_second_process_is_told_to_wait(tmp_path: Path) -> None:
    with locked(tmp_path / "other-1"), pytest.raises(CapacityError, match="Another process is making `other-1`"):
        ensure_installed(tmp_path / "other-1", ["pkg==1"], lambda folder: None)


def test_packages_go_into_the_peers_own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(install, "run_program", lambda command, timeout_s: commands.append([str(word) for word in command]))
    make_environment(tmp_path, ["other==1"])
    assert commands[0] == [sys.executable, "-m", "venv", str(tmp_path / "venv")]
    assert commands[1][0] == str(peer_python(tmp_path))
    assert commands[1][-1] == "other==1"


def test_build_tells_each_tenth_once(capsys: pytest.CaptureFixture[str]) -> None:
    script = "print('configuring'); [print(f'[{n}/40] compile {n}') for n in range(1, 41)]"
    run_build([sys.executable, "-c", script], "other-1")
    told = capsys.readouterr().err.splitlines()
    assert told == [f"other-1: {10 * tenth} % built …" for tenth in range(1, 11)]


def test_failed_build_shows_its_last_words() -> None:
    with pytest.raises(EngineError, match="undefined symbol"):
        run_build([sys.executable, "-c", "import sys; sys.exit('undefined symbol')"], "other-1")
