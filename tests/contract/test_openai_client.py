"""The official OpenAI client against the served default model, as its users write it."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.contract.live_server import LiveServer

MODEL = "smollm2:135m"
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Name three colours."}]


@pytest.fixture(scope="module")
def client(smollm2: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=smollm2.url + "/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def test_models_lists_the_one_that_is_served(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == "SmolLM2-135M-Instruct.Q4_1"
    assert client.models.retrieve(MODEL).id == model.id


def test_a_chat_streamed_is_the_chat_whole(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=0, max_completion_tokens=24)
    stream = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, temperature=0, max_tokens=24, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert len(text) > 10
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason] == [
        whole.choices[0].finish_reason
    ]
    usage, streamed = whole.usage, chunks[-1].usage
    assert usage is not None
    assert streamed is not None
    assert (streamed.prompt_tokens, streamed.completion_tokens) == (usage.prompt_tokens, usage.completion_tokens)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_second_turn_finds_the_first_in_the_cache(client: openai.OpenAI) -> None:
    question: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Tell me about the sea, and about the ships on it. " * 3}]
    first = client.chat.completions.create(model=MODEL, messages=question, temperature=0, max_tokens=8)
    again = client.chat.completions.create(model=MODEL, messages=question, temperature=0, max_tokens=8)
    assert again.choices[0].message.content == first.choices[0].message.content
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert (again.usage.prompt_tokens_details.cached_tokens or 0) >= 16


def test_a_completion_takes_texts_and_token_ids(client: openai.OpenAI) -> None:
    both = client.completions.create(model=MODEL, prompt=["The sun is", "The moon is"], temperature=0, max_tokens=6)
    assert [choice.index for choice in both.choices] == [0, 1]
    alone = client.completions.create(model=MODEL, prompt="The moon is", temperature=0, max_tokens=6)
    assert alone.choices[0].text == both.choices[1].text
    by_ids = client.completions.create(model=MODEL, prompt=[504, 3575, 314], temperature=0, max_tokens=6)
    as_list = client.completions.create(model=MODEL, prompt=[[504, 3575, 314]], temperature=0, max_tokens=6)
    assert by_ids.choices[0].text == as_list.choices[0].text
    assert by_ids.usage is not None
    assert by_ids.usage.prompt_tokens == 3


def test_a_streamed_completion_is_the_whole_one(client: openai.OpenAI) -> None:
    stream = client.completions.create(model=MODEL, prompt="One, two,", temperature=0, max_tokens=12, stream=True)
    text = "".join(chunk.choices[0].text for chunk in stream)
    assert text == client.completions.create(model=MODEL, prompt="One, two,", temperature=0, max_tokens=12).choices[0].text


def test_chat_logprobs_have_the_chosen_token_first_when_greedy(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=0, max_tokens=5, logprobs=True, top_logprobs=5)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    entries = logprobs.content or []
    assert len(entries) == 5
    for entry in entries:
        assert len(entry.top_logprobs) == 5
        assert (entry.token, entry.logprob) == (entry.top_logprobs[0].token, entry.top_logprobs[0].logprob)
        assert entry.logprob <= 0
    assert "".join(entry.token for entry in entries) == answer.choices[0].message.content


@pytest.mark.parametrize("count", [0, 1, 20])
def test_completion_logprobs_have_as_many_alternatives_as_asked(client: openai.OpenAI, count: int) -> None:
    answer = client.completions.create(model=MODEL, prompt="The sun", temperature=0, max_tokens=3, logprobs=count)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert [len(top) for top in logprobs.top_logprobs or []] == [max(count, 1)] * 3
    assert "".join(logprobs.tokens or []) == answer.choices[0].text
    assert logprobs.text_offset == [0, len((logprobs.tokens or [])[0]), len("".join((logprobs.tokens or [])[:2]))]


def test_several_choices_differ_and_repeat_with_their_seed(client: openai.OpenAI) -> None:
    def texts() -> list[str]:
        answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, n=4, seed=7, temperature=1.0, max_tokens=12)
        assert answer.usage is not None
        assert answer.usage.completion_tokens <= 48
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
        return [choice.message.content or "" for choice in answer.choices]

    first = texts()
    assert len(set(first)) == 4
    assert texts() == first


def test_errors_are_the_clients_own_kinds(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-4", messages=MESSAGES)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, top_p=1.5)
    assert (wrong.value.param, wrong.value.type) == ("top_p", "invalid_request_error")


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_prompt_over_the_context_is_refused_with_both_numbers(client: openai.OpenAI, is_streamed: bool) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt=[5] * 9000, stream=is_streamed)
    assert caught.value.code == "context_length_exceeded"
    assert "9000" in caught.value.message
    assert "8192" in caught.value.message


def test_a_request_beside_refused_ones_is_answered_as_before(client: openai.OpenAI, smollm2: LiveServer) -> None:
    def control() -> str:
        return client.completions.create(model=MODEL, prompt="The sun is", temperature=0, max_tokens=8).choices[0].text

    before = control()
    wrong: list[dict[str, object]] = [{"prompt": []}, {"prompt": "a", "n": -1}, {"prompt": [10**9]}, {"prompt": "a", "echo": True}]
    for body in wrong:
        assert smollm2.post("/v1/completions", body).status_code == 400
    assert control() == before
    assert smollm2.get("/health").status_code == 200
