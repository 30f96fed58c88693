"""Metrics say what was counted, under the dashboards' names."""

from __future__ import annotations

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from paceline.engine.messages import EngineStats
from paceline.observe.metrics import Histogram, ServerMetrics


def samples(metrics: ServerMetrics, stats: EngineStats) -> dict[str, float]:
    text = metrics.render(msgspec.structs.asdict(stats)).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["model_name"] == "tiny"
            extra = "".join(f"|{value}" for name, value in sample.labels.items() if name != "model_name")
            found[sample.name + extra] = sample.value
    return found


def test_a_value_counts_in_the_bucket_whose_bound_it_reaches() -> None:
    histogram = Histogram((0.001, 0.01))
    for value in (0.001, 0.0011, 0.01, 5.0):
        histogram.observe(value)
    assert histogram.cumulative() == [("0.001", 1), ("0.01", 3), ("+Inf", 4)]
    assert histogram.total == 5.0121


def test_the_text_has_every_name_with_its_value() -> None:
    metrics = ServerMetrics("tiny")
    metrics.prompt_tokens, metrics.generation_tokens = 7, 5
    metrics.finished["length"] += 2
    metrics.time_to_first_token.observe(0.004)
    stats = EngineStats(num_running=3, num_waiting=4, num_blocks=9, num_blocks_used=2, num_preemptions=1, prefix_queries=32, prefix_hits=16)
    found = samples(metrics, stats)
    expected = {
        "vllm:num_requests_running": 3,
        "vllm:num_requests_waiting": 4,
        "vllm:kv_cache_usage_perc": 0.25,
        "vllm:num_preemptions_total": 1,
        "vllm:prefix_cache_queries_total": 32,
        "vllm:prefix_cache_hits_total": 16,
        "vllm:prompt_tokens_total": 7,
        "vllm:generation_tokens_total": 5,
        "vllm:request_success_total|length": 2,
        "vllm:request_success_total|stop": 0,
        "vllm:time_to_first_token_seconds_count": 1,
        "vllm:time_to_first_token_seconds_sum": 0.004,
        "vllm:time_to_first_token_seconds_bucket|0.003": 0,
        "vllm:time_to_first_token_seconds_bucket|0.005": 1,
        "vllm:inter_token_latency_seconds_count": 0,
        "vllm:e2e_request_latency_seconds_count": 0,
        "vllm:request_queue_time_seconds_count": 0,
        "vllm:request_prefill_time_seconds_count": 0,
        "vllm:request_decode_time_seconds_count": 0,
        "vllm:request_inference_time_seconds_count": 0,
    }
    assert {name: found[name] for name in expected} == expected
