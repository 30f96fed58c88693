"""`paceline inspect MODEL --time-model`: what this machine has learned of how long this model's steps take.

The one idea: the coefficients are read aloud, and beside them what typical steps are predicted to take, with the band that nine in ten
steps and all but one in a hundred stayed within. It measures nothing; running the model does.
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.planner.time_model import TimeModel, Work, work_of

MIDDLE, NINE_IN_TEN, NINETY_NINE = 0.5, 0.9, 0.99
TYPICAL: tuple[tuple[str, Work], ...] = (
    ("1 decode, context 128", work_of([(127, 1, 1)])),
    ("1 decode, context 4,096", work_of([(4095, 1, 1)])),
    ("8 decodes, context 512", work_of([(511, 1, 1)] * 8)),
    ("32 decodes, context 512", work_of([(511, 1, 1)] * 32)),
    ("1 sequence, 4 drafts verified", work_of([(512, 5, 5)])),
    ("256 tokens of a prompt", work_of([(0, 256, 1)])),
    ("16 decodes and 128 tokens of a prompt", work_of([*[(511, 1, 1)] * 16, (0, 128, 1)])),
)


def time_model_lines(model: TimeModel) -> Iterator[str]:
    """The report, a line each."""
    if not model.num_steps:
        yield "steps     none measured yet; serve or run the model first. These are guesses:"
    else:
        yield f"steps     {model.num_steps:,} measured"
    yield from _coefficients(model)
    half, nine_in_ten = model.quantile(MIDDLE), model.quantile(NINE_IN_TEN)
    yield f"band      half of the steps within {half:.2f} of the prediction, 90 % within {nine_in_ten:.2f}"
    for words, work in TYPICAL:
        middle = 1e3 * model.predict(work)
        yield f"predicted {words:<38} {middle:8.2f} ms   99 % within {middle * model.quantile(NINETY_NINE):8.2f} ms"


def _coefficients(model: TimeModel) -> Iterator[str]:
    constant, token, beyond, prefill, decode, slices, rows = model.weights
    yield f"cost      {1e3 * constant:.3f} ms a step"
    yield f"cost      {1e6 * token:.1f} µs a token, {1e6 * (token + beyond):.1f} µs beyond {model.knee} tokens"
    yield f"cost      {1e9 * prefill:.2f} ns a token of a prompt and token of its context"
    yield f"cost      {1e9 * decode:.2f} ns a token of context when decoding"
    yield f"cost      {1e6 * slices:.1f} µs a sequence, {1e6 * rows:.1f} µs a row of logits"
