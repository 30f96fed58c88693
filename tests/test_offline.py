"""The offline API: names people know, prompts in every shape, results in order."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline import LLM, RequestOutput, SamplingParams
from paceline.errors import ContextLengthError, EngineError, NotFoundError, RequestError
from paceline.offline import Prompt, engine_config_from
from tests.generators.tiny_models import tiny_gguf

GREEDY = SamplingParams(temperature=0.0, max_tokens=6)

ScriptedModel = Callable[[str], LLM]


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama with a byte-level tokenizer and a ChatML template."""
    return tiny_gguf(tmp_path_factory.mktemp("offline") / "tiny.gguf", "llama")


@pytest.fixture(scope="module")
def llm(tiny_path: Path) -> Iterator[LLM]:
    """The tiny model on the native backend."""
    with LLM(tiny_path, threads=1, num_blocks=64) as model:
        yield model


@pytest.fixture
def says(tiny_path: Path, tmp_path: Path) -> Iterator[ScriptedModel]:
    """A model that says a given text and ends."""
    models: list[LLM] = []

    def make(text: str) -> LLM:
        path = tmp_path / "script.json"
        path.write_text("[[]]")
        with LLM(tiny_path, backend="scripted", script=str(path)) as model:
            tokens = model.tokenizer.encode(text, add_special=False, parse_special=False)
        path.write_text(json.dumps([tokens]))
        models.append(LLM(tiny_path, backend="scripted", script=str(path)))
        return models[-1]

    yield make
    for model in models:
        model.close()


def texts(outputs: list[RequestOutput]) -> list[str]:
    """The first text of each."""
    return [output.outputs[0].text for output in outputs]


def test_results_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = [f"prompt {number}" for number in range(12)]
    together = llm.generate(prompts, GREEDY)
    assert [output.prompt for output in together] == prompts
    assert [output.outputs[0].token_ids for output in together] == [
        llm.generate(prompt, GREEDY)[0].outputs[0].token_ids for prompt in prompts
    ]
    assert all(output.finished and output.outputs[0].finish_reason == "length" for output in together)


def test_more_prompts_than_the_queue_holds_all_finish(tiny_path: Path) -> None:
    with LLM(tiny_path, backend="null", max_waiting=2, max_num_seqs=2) as model:
        assert len(model.generate(["a"] * 9, GREEDY)) == 9


def test_a_prompt_has_many_shapes(llm: LLM) -> None:
    ids = llm.tokenizer.encode("hello", add_special=True, parse_special=True)
    prompts: list[Prompt] = ["hello", ids, {"prompt": "hello"}, {"prompt_token_ids": ids}]
    shapes = llm.generate(prompts, GREEDY)
    single = llm.generate(ids, GREEDY) + llm.generate("hello", GREEDY)
    assert {tuple(output.outputs[0].token_ids) for output in shapes + single} == {tuple(shapes[0].outputs[0].token_ids)}
    assert [output.prompt for output in shapes] == ["hello", None, "hello", None]
    assert all(output.prompt_token_ids == ids for output in shapes)


def test_chat_takes_one_conversation_or_several(llm: LLM) -> None:
    conversation = [{"role": "user", "content": "hi"}]
    (one,) = llm.chat(conversation, GREEDY)
    two = llm.chat([conversation, conversation], GREEDY)
    assert texts(two) == texts([one]) * 2
    text = b"".join(llm.tokenizer.token_bytes(token_id) for token_id in one.prompt_token_ids)
    assert text == b"<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_each_prompt_may_have_params_of_its_own(llm: LLM) -> None:
    outputs = llm.generate(["a", "b"], [SamplingParams(max_tokens=2, seed=1), SamplingParams(max_tokens=4, n=2, seed=1)])
    assert [[len(one.token_ids) for one in output.outputs] for output in outputs] == [[2], [4, 4]]
    with pytest.raises(RequestError, match="1 sampling params for 2 prompts"):
        llm.generate(["a", "b"], [GREEDY])


def test_seeds_repeat_and_indices_differ(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=7, max_tokens=8, ignore_eos=True)
    first, second = (llm.generate("a", params)[0].outputs for _ in range(2))
    assert [one.token_ids for one in first] == [one.token_ids for one in second]
    assert len({tuple(one.token_ids) for one in first}) == 3


def test_logprobs_have_the_chosen_token_and_the_alternatives(llm: LLM) -> None:
    (output,) = llm.generate("a", SamplingParams(temperature=0.0, max_tokens=3, logprobs=2))
    (one,) = output.outputs
    assert one.logprobs is not None
    assert one.cumulative_logprob == pytest.approx(
        sum(position[token].logprob for position, token in zip(one.logprobs, one.token_ids, strict=True))
    )
    assert all(len(position) == 2 and position[token].rank == 1 for position, token in zip(one.logprobs, one.token_ids, strict=True))


def test_generate_stops_at_16_tokens_and_chat_at_the_context(tiny_path: Path) -> None:
    with LLM(tiny_path, backend="null", max_model_len=64) as model:
        assert len(model.generate("a")[0].outputs[0].token_ids) == 16
        (answer,) = model.chat([{"role": "user", "content": "a"}])
        assert len(answer.prompt_token_ids) + len(answer.outputs[0].token_ids) == 64


def test_the_end_token_is_counted_but_not_shown(says: ScriptedModel) -> None:
    (output,) = says("héllo").generate("a", SamplingParams(max_tokens=30, skip_special_tokens=False))
    (one,) = output.outputs
    assert (one.text, one.finish_reason, one.stop_reason) == ("héllo", "stop", None)


@pytest.mark.parametrize(("includes", "text"), [(False, "one two "), (True, "one two three")])
def test_a_stop_string_ends_the_text(says: ScriptedModel, includes: bool, text: str) -> None:
    params = SamplingParams(max_tokens=40, stop=("three",), include_stop_str_in_output=includes)
    (output,) = says("one two three four").generate("a", params)
    (one,) = output.outputs
    assert (one.text, one.finish_reason, one.stop_reason) == (text, "stop", "three")


def test_a_second_call_hits_the_first_ones_prefix(llm: LLM) -> None:
    prompt = "the same prompt, long enough for several blocks of sixteen tokens each"
    num_tokens = len(llm.generate(prompt, GREEDY)[0].prompt_token_ids)
    (again,) = llm.generate(prompt, GREEDY)
    assert again.num_cached_tokens == (num_tokens - 1) // 16 * 16 > 0
    assert again.timings.finished >= again.timings.arrived


def test_a_bad_request_runs_nothing_and_harms_nothing(llm: LLM) -> None:
    too_long: list[Prompt] = ["fine", [5] * 5000]
    with pytest.raises(ContextLengthError):
        llm.generate(too_long, GREEDY)
    with pytest.raises(RequestError, match="vocabulary"):
        llm.generate([10**6], GREEDY)
    wrong_prompts: list[Any] = [[["a"]], [{"text": "a"}], [5.5]]
    for wrong in wrong_prompts:
        with pytest.raises(RequestError):
            llm.generate(wrong, GREEDY)
    assert llm.generate("fine", GREEDY)[0].finished


@pytest.mark.parametrize("prompts", [None, 5, b"abc", [b"abc"], [None], [1.5], [True], {"prompt": None}, iter(["a"])])
def test_what_is_no_prompt_is_said(llm: LLM, prompts: Any) -> None:
    with pytest.raises(RequestError) as caught:
        llm.generate(prompts, GREEDY)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("params", [5, "x", {"temperature": 0}, [None]])
def test_what_are_no_sampling_params_is_said(llm: LLM, params: Any) -> None:
    with pytest.raises(RequestError) as caught:
        llm.generate("a", params)
    assert caught.value.param == "sampling_params"


@pytest.mark.parametrize("messages", [None, 5, "hi", {"role": "user", "content": "hi"}])
def test_what_are_no_messages_is_said(llm: LLM, messages: Any) -> None:
    with pytest.raises(RequestError) as caught:
        llm.chat(messages, GREEDY)
    assert caught.value.param == "messages"


def test_calls_from_several_threads_wait_for_each_other(llm: LLM) -> None:
    alone = texts(llm.generate("abc", GREEDY))
    together: list[list[str]] = []
    threads = [threading.Thread(target=lambda: together.append(texts(llm.generate("abc", GREEDY)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [alone] * 4


def test_a_closed_model_says_so(tiny_path: Path) -> None:
    model = LLM(tiny_path, backend="null")
    model.close()
    model.close()
    with pytest.raises(EngineError, match="has been closed"):
        model.generate("a", GREEDY)


def test_an_unknown_setting_names_its_neighbours() -> None:
    with pytest.raises(RequestError, match="did you mean `max_num_seqs`"):
        engine_config_from({"max_num_seq": 3})
    assert engine_config_from({"gpu_memory_utilization": 0.5}).memory_utilization == 0.5


@pytest.mark.parametrize(
    "settings", [{"threads": "two"}, {"seed": None}, {"max_num_seqs": True}, {"backend": 1}, {"memory_utilization": "1"}]
)
def test_a_setting_of_a_wrong_kind_names_its_field(settings: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="expected") as caught:
        engine_config_from(settings)
    assert caught.value.param == next(iter(settings))


def test_an_unknown_model_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        LLM(tmp_path / "none.gguf")


def test_progress_goes_to_stderr(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate(["a", "b"], GREEDY, use_tqdm=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2/2" in captured.err or "100%" in captured.err


def test_importing_the_package_imports_nothing_heavy() -> None:
    home = Path(paceline.__file__).parents[1]
    heavy = {"numpy", "msgspec", "tokenizers", "jinja2"}
    code = f"import sys; sys.path.insert(0, {str(home)!r}); import paceline; print(*{{name.split('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "paceline" in loaded
    assert heavy.isdisjoint(loaded)


def test_exactly_the_exported_names_are_there() -> None:
    assert set(paceline.__all__) == {"LLM", "RequestOutput", "SamplingParams", "__version__"}
    assert all(getattr(paceline, name) is not None for name in paceline.__all__)
    with pytest.raises(AttributeError, match="no attribute `Engine`"):
        paceline.Engine  # noqa: B018
