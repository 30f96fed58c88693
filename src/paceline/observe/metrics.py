"""What the server counts, under the names that dashboards for LLM servers already read.

The one idea: counting is a list index and an addition, because it happens per token; `prometheus_client` is imported
only when somebody asks for the text. One thread counts and renders, so nothing is locked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Metric

Stats = Mapping[str, float]
"""The engine's gauges and totals by the names of `EngineStats`."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LATENCY_BUCKETS_S = (
    *(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5),
    *(10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)


class Histogram:
    """Counts of values by bucket; a bucket holds values up to and including its bound."""

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BUCKETS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Pairs of upper bound and count of values not over it, `+Inf` last."""
        running, pairs = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            pairs.append((bound, float(running)))
        return pairs


class ServerMetrics:
    """Everything that one server counts of one model."""

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.finished: dict[str, int] = {"stop": 0, "length": 0, "abort": 0, "deadline": 0, "error": 0}
        self.time_to_first_token = Histogram()
        self.inter_token_latency = Histogram()
        self.e2e_latency = Histogram()
        self.queue_time = Histogram()
        self.prefill_time = Histogram()
        self.decode_time = Histogram()
        self.inference_time = Histogram()

    def render(self, stats: Stats) -> bytes:
        """The Prometheus text of everything counted, with the engine's gauges and totals."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.registry import Collector

        metrics = self

        class Snapshot(Collector):
            def collect(self) -> Iterator[Metric]:
                yield from metrics._families(stats)

        registry = CollectorRegistry(auto_describe=False)
        registry.register(Snapshot())
        return generate_latest(registry)

    def _families(self, stats: Stats) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for name, help_text, value in self._gauges(stats):
            gauge = GaugeMetricFamily(name, help_text, labels=["model_name"])
            gauge.add_metric([self.model_name], value)
            yield gauge
        for name, help_text, value in self._counters(stats):
            counter = CounterMetricFamily(name, help_text, labels=["model_name"])
            counter.add_metric([self.model_name], value)
            yield counter
        success = CounterMetricFamily("vllm:request_success", "Finished sequences by reason.", labels=["model_name", "finished_reason"])
        for reason, count in self.finished.items():
            success.add_metric([self.model_name, reason], count)
        yield success
        for name, help_text, histogram in self._histograms():
            family = HistogramMetricFamily(name, help_text, labels=["model_name"])
            family.add_metric([self.model_name], buckets=histogram.cumulative(), sum_value=histogram.total)
            yield family

    def _gauges(self, stats: Stats) -> Iterator[tuple[str, str, float]]:
        usable = max(stats["num_blocks"] - 1, 1)  # the null block holds nothing
        yield "vllm:num_requests_running", "Sequences that the last step advanced.", stats["num_running"]
        yield "vllm:num_requests_waiting", "Sequences that wait to be scheduled.", stats["num_waiting"]
        yield "vllm:kv_cache_usage_perc", "Share of KV blocks in use (1 is all).", stats["num_blocks_used"] / usable
        yield "paceline:kv_blocks_used", "KV blocks in use.", stats["num_blocks_used"]

    def _counters(self, stats: Stats) -> Iterator[tuple[str, str, float]]:
        yield "vllm:num_preemptions", "Sequences that were preempted.", stats["num_preemptions"]
        yield "vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", stats["prefix_queries"]
        yield "vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.", stats["prefix_hits"]
        yield "vllm:prompt_tokens", "Prompt tokens of finished requests.", self.prompt_tokens
        yield "vllm:generation_tokens", "Tokens generated.", self.generation_tokens
        yield "paceline:steps", "Steps of the engine.", stats["num_steps"]
        yield "paceline:step_tokens", "Tokens computed in steps.", stats["step_tokens"]
        yield "paceline:step_seconds", "Time spent in steps.", stats["step_s"]

    def _histograms(self) -> Iterator[tuple[str, str, Histogram]]:
        yield "vllm:time_to_first_token_seconds", "From receiving a request to its first token.", self.time_to_first_token
        yield "vllm:inter_token_latency_seconds", "Between tokens of a sequence.", self.inter_token_latency
        yield "vllm:e2e_request_latency_seconds", "From receiving a request to its last token.", self.e2e_latency
        yield "vllm:request_queue_time_seconds", "From submission to the first step.", self.queue_time
        yield "vllm:request_prefill_time_seconds", "From the first step to the first token.", self.prefill_time
        yield "vllm:request_decode_time_seconds", "From the first token to the last.", self.decode_time
        yield "vllm:request_inference_time_seconds", "From the first step to the last token.", self.inference_time
