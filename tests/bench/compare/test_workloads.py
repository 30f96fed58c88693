"""Workloads have the sizes that the guide promises, and figures count what they say."""

from __future__ import annotations

import pytest

from paceline.bench.compare.workloads import ONE_ROW, WORKLOADS, find_workloads
from paceline.errors import RequestError


def test_decode_runs_from_context_128_to_192() -> None:
    for name, streams in (("decode1", 1), ("decode16", 16)):
        workload = WORKLOADS[name]
        assert (workload.streams, workload.prompt_tokens, workload.new_tokens) == (streams, 128, 64)


def test_chats_are_the_same_with_and_without_a_server() -> None:
    offline, http = WORKLOADS["chats16"], WORKLOADS["http"]
    assert (offline.streams, offline.prompt_tokens, offline.new_tokens) == (16, 170, 128)
    assert (http.streams, http.prompt_tokens, http.new_tokens) == (16, 170, 128)


def test_verify_differs_from_its_reference_in_rows_alone() -> None:
    assert (WORKLOADS["verify5"].streams, ONE_ROW.streams) == (5, 1)
    assert ONE_ROW.prompt_tokens == WORKLOADS["verify5"].prompt_tokens


def test_prefill_counts_prompt_tokens_and_chats_count_new_ones() -> None:
    assert WORKLOADS["prefill512"].figure(2.0) == 256.0
    assert WORKLOADS["chats16"].figure(4.0) == 512.0
    assert WORKLOADS["decode16"].figure(2.0) == 512.0


def test_verify_figure_is_a_steps_milliseconds() -> None:
    assert WORKLOADS["verify5"].figure(0.64) == pytest.approx(10.0)
    assert WORKLOADS["verify5"].unit == "ms/step"


def test_list_keeps_its_order_and_each_name_once() -> None:
    assert [workload.name for workload in find_workloads("http,decode1,http")] == ["http", "decode1"]


def test_unknown_workload_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"`decode2`.*decode1, decode16"):
        find_workloads("decode1,decode2")
