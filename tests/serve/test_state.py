"""The state says honestly whether requests are taken, and what the model is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.config import ServeConfig
from paceline.engine.client import ClientState, InProcessClient
from paceline.errors import NotFoundError
from paceline.serve.failures import UnavailableError
from paceline.serve.state import ModelNames, ModelText, ServerState, model_names
from tests.engine.looped_engine import LoopedEngine
from tests.serve.looped_server import tiny_text


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    return tiny_text(tmp_path_factory.mktemp("tiny"))


def state_of(client_state: ClientState, text: ModelText | None) -> ServerState:
    client = InProcessClient(LoopedEngine(), max_open=1)
    client.state = client_state
    state = ServerState(ServeConfig(), client, ModelNames("a", frozenset({"b"}), "a.gguf"), seed=5)
    state.model = text
    return state


def test_a_server_is_ready_when_both_sides_have_loaded(text: ModelText) -> None:
    assert state_of("ready", text).health == "ready"
    assert state_of("ready", None).health == "loading"
    assert state_of("loading", text).health == "loading"
    assert state_of("dead", text).health == "dead"


@pytest.mark.parametrize(("client_state", "message"), [("loading", "still loading"), ("dead", "has stopped")])
def test_a_server_that_is_not_ready_says_why(text: ModelText, client_state: ClientState, message: str) -> None:
    with pytest.raises(UnavailableError, match=message):
        state_of(client_state, text).require_ready()


def test_names_come_from_the_flag_else_from_what_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf"
    path.touch()
    by_path = model_names(ServeConfig(), str(path), path)
    assert by_path.primary == "SmolLM2-135M-Instruct.Q4_1"
    assert {"smollm2:135m", str(path), path.name} <= by_path.others
    assert model_names(ServeConfig(), "smollm2:135m", path).primary == "smollm2:135m"
    flagged = model_names(ServeConfig(served_model_name=("x", "y")), "smollm2:135m", path)
    assert flagged.primary == "x"
    assert {"x", "y", "smollm2:135m"} <= flagged.others


def test_only_known_names_are_answered(text: ModelText) -> None:
    state = state_of("ready", text)
    assert [state.check_model(name) for name in (None, "a", "b")] == ["a", "a", "b"]
    with pytest.raises(NotFoundError, match="`c` is not served here"):
        state.check_model("c")


def test_drawn_seeds_repeat_with_the_servers_seed_and_fit_any_json_reader(text: ModelText) -> None:
    draws = [[state.draw_seed() for _ in range(3)] for state in (state_of("ready", text), state_of("ready", text))]
    assert draws[0] == draws[1]
    assert len(set(draws[0])) == 3
    assert max(draws[0]) < 2**53
