"""Drawing tokens: the random words, the noise, the filters, and what comes out of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.backends.base import F32, Draws
from paceline.sampling.draw import gumbel, keep, philox, pick


def draws(num_rows: int, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, seed: int = 7) -> Draws:
    """The same draw for every row, at consecutive positions."""
    return Draws(
        temperature=np.full(num_rows, temperature, np.float32),
        top_k=np.full(num_rows, top_k, np.int32),
        top_p=np.full(num_rows, top_p, np.float32),
        min_p=np.full(num_rows, min_p, np.float32),
        seeds=np.full(num_rows, seed, np.uint64),
        seq_indices=np.zeros(num_rows, np.int32),
        positions=np.arange(num_rows, dtype=np.int32),
    )


def logits_of(probabilities: list[float], num_rows: int = 1) -> F32:
    """Rows of log-probabilities."""
    return np.tile(np.log(np.array(probabilities, np.float32)), (num_rows, 1))


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
    ids=["zeros", "ones", "digits of pi"],
)
def test_philox_gives_the_published_words(counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]) -> None:
    # Source: Random123 kat_vectors, philox4x32 10
    assert philox(np.array([counter], np.uint32), key)[0].tolist() == list(words)


def test_noise_of_a_token_is_word_id_mod_4_of_counter_id_div_4() -> None:
    seed, seq_index, position, token = (5 << 32) | 9, 3, 11, 6
    word = int(philox(np.array([[token // 4, position, seq_index, 0]], np.uint32), (9, 5))[0, token % 4])
    expected = -math.log(-math.log((word + 0.5) * 2.0**-32))
    assert gumbel(seed, seq_index, position, 8)[token] == pytest.approx(expected, rel=1e-15)


def test_noise_does_not_depend_on_the_vocabulary_size() -> None:
    assert gumbel(1, 0, 0, 10).tolist() == gumbel(1, 0, 0, 1000)[:10].tolist()


@pytest.mark.parametrize("changed", [{"seed": 2}, {"seq_index": 1}, {"position": 1}, {"seed": 1 + (1 << 32)}])
def test_noise_depends_on_seed_sequence_and_position(changed: dict[str, int]) -> None:
    plain = {"seed": 1, "seq_index": 0, "position": 0, "vocab_size": 16}
    assert not np.intersect1d(gumbel(**plain), gumbel(**{**plain, **changed})).size


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    logits = np.array([[1.0, 3.0, 3.0, -np.inf]], np.float32)
    assert pick(logits, draws(1, temperature=0.0)).tolist() == [1]


def test_temperature_just_below_the_border_is_greedy() -> None:
    assert pick(logits_of([0.4, 0.6], 50), draws(50, temperature=9e-7)).tolist() == [1] * 50


def test_masked_tokens_are_never_picked() -> None:
    logits = np.zeros((2000, 5), np.float32)
    logits[:, [0, 3]] = -np.inf
    assert set(pick(logits, draws(2000, temperature=5.0)).tolist()) == {1, 2, 4}


def test_a_row_is_picked_the_same_alone_and_in_a_batch() -> None:
    logits = np.random.default_rng(0).normal(size=(20, 50)).astype(np.float32)
    together, how = pick(logits, draws(20)), draws(20)
    for row in range(20):
        alone = Draws(*(getattr(how, name)[row : row + 1] for name in Draws.__dataclass_fields__))
        assert pick(logits[row : row + 1], alone).tolist() == [together[row]]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature: float) -> None:
    probabilities = np.array([0.4, 0.25, 0.2, 0.1, 0.05])
    num_draws = 4000
    counts = np.bincount(pick(logits_of(probabilities.tolist(), num_draws), draws(num_draws, temperature=temperature)), minlength=5)
    expected = probabilities ** (1 / temperature)
    expected *= num_draws / expected.sum()
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # The 99.9 % point of chi-square with 4 degrees of freedom
    assert chi_square < 18.47


def test_draws_follow_the_softmax_of_what_the_filters_leave() -> None:
    num_draws = 4000
    counts = np.bincount(pick(logits_of([0.4, 0.3, 0.2, 0.1], num_draws), draws(num_draws, top_p=0.65)), minlength=4)
    expected = num_draws * np.array([4 / 7, 3 / 7])
    assert counts[2:].tolist() == [0, 0]
    # The 99.9 % point of chi-square with 1 degree of freedom
    assert float(((counts[:2] - expected) ** 2 / expected).sum()) < 10.83


@pytest.mark.parametrize(
    ("min_p", "top_k", "top_p", "kept"),
    [
        (0.0, 0, 1.0, [0, 1, 2, 3]),
        (0.45, 0, 1.0, [0, 1, 2]),
        (1.0, 0, 1.0, [0]),
        (0.0, 2, 1.0, [0, 1]),
        (0.0, 99, 1.0, [0, 1, 2, 3]),
        (0.0, 0, 0.39, [0]),
        (0.0, 0, 0.41, [0, 1]),
        (0.0, 0, 0.64, [0, 1]),
        (0.0, 0, 0.66, [0, 1, 2]),
        (0.0, 0, 1e-9, [0]),
        # Mass is of all tokens: two of them hold 0.65, which is less than 0.7
        (0.0, 2, 0.7, [0, 1]),
        (0.3, 3, 0.9, [0, 1, 2]),
    ],
)
def test_filters_keep_what_they_say(min_p: float, top_k: int, top_p: float, kept: list[int]) -> None:
    scaled = np.log(np.array([0.4, 0.25, 0.2, 0.15]))
    assert np.flatnonzero(keep(scaled, min_p, top_k, top_p)).tolist() == kept


def test_ties_at_a_border_keep_the_lower_ids() -> None:
    flat = np.zeros(8)
    assert np.flatnonzero(keep(flat, 0.0, 3, 1.0)).tolist() == [0, 1, 2]
    assert np.flatnonzero(keep(flat, 0.0, 0, 0.5)).tolist() == [0, 1, 2, 3]


def test_a_row_with_nothing_left_still_picks_a_token() -> None:
    assert pick(np.full((1, 4), -np.inf, np.float32), draws(1, top_p=0.5)).tolist() == [0]
