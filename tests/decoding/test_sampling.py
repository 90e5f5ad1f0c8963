import numpy as np
import pytest
from decoding_fakes import END, HistoryModel, search_space
from keras import ops

from kformer.decoding import greedy_search, sample
from kformer.decoding.sampling import narrowed_logits

# Over pad, start, end, a, b, c, d.
PROBABILITIES = np.array([0.05, 0.05, 0.1, 0.2, 0.4, 0.15, 0.05])


def first_tokens(rows, min_length=0, **options):
    logits = np.broadcast_to(np.log(PROBABILITIES).astype("float32"), (rows, 7))
    options = {"seed": 1, **options}
    result = sample(
        lambda tokens, state: (ops.convert_to_tensor(logits), state),
        (),
        search_space([1] * rows, 1, min_length),
        **options,
    )
    return np.array(result.tokens)[:, 0, 0]


def assert_frequencies(tokens, expected):
    # Hoeffding: P(|frequency - p| >= t) <= 2 exp(-2 n t^2) for each of the 7 tokens. With a total of 1e-9 for being
    # wrong: t = sqrt(log(2 * 7 / 1e-9) / (2 n)), 0.024 for n = 20011.
    bound = np.sqrt(np.log(2 * 7 / 1e-9) / (2 * len(tokens)))
    frequencies = np.bincount(tokens, minlength=7) / len(tokens)
    np.testing.assert_allclose(frequencies, np.array(expected) / np.sum(expected), atol=bound)
    assert not np.any(frequencies[np.array(expected) == 0])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Pad and start never come; the rest keeps its proportions.
        ({}, [0, 0, 0.1, 0.2, 0.4, 0.15, 0.05]),
        ({"min_length": 1}, [0, 0, 0, 0.2, 0.4, 0.15, 0.05]),
        # p^(1 / temperature): the squares at 0.5, the square roots at 2.
        ({"temperature": 0.5}, [0, 0, 0.01, 0.04, 0.16, 0.0225, 0.0025]),
        ({"temperature": 2.0}, np.sqrt([0, 0, 0.1, 0.2, 0.4, 0.15, 0.05])),
        ({"top_k": 2}, [0, 0, 0, 0.2, 0.4, 0, 0]),
        ({"top_k": 1}, [0, 0, 0, 0, 1, 0, 0]),
        # Without pad and start b has 0.4 / 0.9 = 0.444, a 0.222, c 0.167: sums 0.444, 0.667, 0.833.
        ({"top_p": 0.44}, [0, 0, 0, 0, 1, 0, 0]),
        ({"top_p": 0.45}, [0, 0, 0, 0.2, 0.4, 0, 0]),
        ({"top_p": 0.66}, [0, 0, 0, 0.2, 0.4, 0, 0]),
        ({"top_p": 0.67}, [0, 0, 0, 0.2, 0.4, 0.15, 0]),
        # Of the two that top-k leaves, b has 2 / 3: top-p sees them renormalised.
        ({"top_k": 2, "top_p": 0.66}, [0, 0, 0, 0, 1, 0, 0]),
        ({"top_k": 2, "top_p": 0.67}, [0, 0, 0, 0.2, 0.4, 0, 0]),
        # Squares first: b has 0.16 / 0.235 = 0.68.
        ({"temperature": 0.5, "top_p": 0.67}, [0, 0, 0, 0, 1, 0, 0]),
        ({"temperature": 1e-38}, [0, 0, 0, 0, 1, 0, 0]),  # a processor takes smaller numbers for 0
        ({"temperature": 1e-42}, [0, 0, 0, 0, 1, 0, 0]),
        ({"top_k": 100}, [0, 0, 0.1, 0.2, 0.4, 0.15, 0.05]),
    ],
)
def test_frequencies_follow_the_distribution(options, expected):
    assert_frequencies(first_tokens(20011, **options), expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"top_k": 2}, [0, 0, 0, 0.2, 0.4, 0, 0]),
        ({"top_k": 0}, [0, 0, 0.1, 0.2, 0.4, 0.15, 0.05]),
        ({"top_k": 100}, [0, 0, 0.1, 0.2, 0.4, 0.15, 0.05]),
        ({"top_k": 2, "top_p": 0.66}, [0, 0, 0, 0, 1, 0, 0]),
        ({"top_k": 0, "top_p": 1.0, "temperature": 0.5}, [0, 0, 0.01, 0.04, 0.16, 0.0225, 0.0025]),
    ],
)
def test_options_may_be_tensors(options, expected):
    tensors = {name: ops.convert_to_tensor(value) for name, value in options.items()}
    assert_frequencies(first_tokens(20011, **tensors), expected)


def test_tokens_stay_until_their_probability_reaches_top_p_exactly():
    # Four equal tokens have 1 / 4 each, without rounding: two of them reach 0.5, and three 0.75.
    log_probs = ops.convert_to_tensor([[-np.inf, -np.inf, 0.0, 0.0, 0.0, 0.0]], "float32")
    for top_p, kept in [(0.25, 1), (0.5, 2), (0.75, 3), (0.76, 4)]:
        ranked, ids = narrowed_logits(log_probs, temperature=1.0, top_k=0, top_p=top_p)
        np.testing.assert_array_equal(np.array(ids)[np.isfinite(ranked)], range(2, 2 + kept))


def test_top_k_keeps_exactly_k_of_equal_tokens():
    logits = ops.zeros((503, 11))
    result = sample(
        lambda tokens, state: (logits, state),
        (),
        search_space([3] * 503, 3),
        seed=5,
        top_k=4,
    )
    assert set(np.unique(result.tokens)) == {0, END, 3, 4, 5}  # The four lowest ids; pad ids behind an end token.


def test_the_score_is_the_models_own_log_probability():
    model = HistoryModel(seed=29, sentences=7, vocab_size=6, max_length=4)
    result = sample(
        model.next_logits,
        model.state(range(7)),
        search_space([4, 3, 2, 1, 4, 4, 4], 4),
        seed=3,
        temperature=1.7,
        top_k=3,
        top_p=0.9,
    )
    for sentence in range(7):
        tokens = np.array(result.tokens)[sentence, 0, : int(result.lengths[sentence, 0])]
        np.testing.assert_allclose(result.scores[sentence, 0], model.token_log_probs(sentence, tokens).sum(), rtol=1e-4)


def letters(seed, rows=5, length=13):
    """(rows, length) letters, all 26 equally probable."""
    logits = ops.where(ops.arange(29) == END, -100.0, ops.zeros((rows, 29)))
    space = search_space([length] * rows, length)
    return sample(lambda tokens, state: (logits, state), (), space, seed=seed).tokens[:, 0]


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others():
    np.testing.assert_array_equal(letters(7), letters(7))
    # Equal by chance: 26 ** -65.
    assert np.any(np.array(letters(7)) != np.array(letters(8)))
    assert np.any(np.array(letters(-7)) != np.array(letters(7)))


def test_neighbouring_seeds_and_steps_share_no_draw(compiled):
    # Each of 9 seeds has 6 steps, and each step a draw for 11 rows. Two of the 54 are equal by chance with
    # probability 54 * 53 / 2 * 26 ** -11 = 4e-13.
    search = compiled(lambda seed: letters(seed, rows=11, length=6))
    seeds = [ops.convert_to_tensor([first, second], "int32") for first in (6, 7, 8) for second in (-1, 0, 1)]
    steps = [tuple(column) for seed in seeds for column in np.array(search(seed)).T]
    assert len(set(steps)) == len(steps) == 54


def test_every_bit_of_a_seed_counts(compiled):
    # One draw for 13 rows under 65 seeds: two are equal by chance with probability 65 * 64 / 2 * 26 ** -13 = 8e-16.
    search = compiled(lambda seed: letters(seed, rows=13, length=1))
    seeds = [7, *(7 ^ 2**bit for bit in range(64))]
    halves = [ops.convert_to_tensor([seed % 2**32, seed // 2**32], "uint32") for seed in seeds]
    assert len({tuple(np.array(search(seed))[:, 0]) for seed in halves}) == 65


@pytest.mark.parametrize("distance", [1, 2**30, 2**32, 2**48])
def test_two_seeds_agree_no_more_often_than_by_chance(distance):
    # 1 of 26 draws agrees by chance. Hoeffding: P(|frequency - p| >= t) <= 2 exp(-2 n t^2); 1e-9 for t = 0.033.
    one, other = np.array(letters(7, rows=500, length=20)), np.array(letters(7 + distance, rows=500, length=20))
    for shift in (0, 1):  # also each step with the next one of the other seed
        agree = np.mean(one[:, shift:] == other[:, : 20 - shift])
        np.testing.assert_allclose(agree, 1 / 26, atol=0.034)


def test_an_integer_seed_is_its_two_halves():
    np.testing.assert_array_equal(letters(7 + 5 * 2**32), letters(np.array([7, 5])))
    np.testing.assert_array_equal(letters(-1), letters(np.array([-1, -1])))


def test_every_step_and_every_row_draws_anew():
    tokens = np.array(letters(11, rows=7, length=17))
    assert len({tuple(row) for row in tokens}) == 7  # Rows: two equal by chance with 26 ** -17 each.
    assert len({tuple(column) for column in tokens.T}) == 17  # Steps: 26 ** -7.


def test_a_compiled_search_takes_the_seed_as_an_input(compiled):
    search = compiled(letters)
    seeds = [ops.convert_to_tensor(seed, "int32") for seed in ([7, 0], [8, 0])]
    for seed in seeds:
        np.testing.assert_array_equal(search(seed), letters(seed))
    np.testing.assert_array_equal(search(seeds[0]), letters(7))
    assert np.any(np.array(search(seeds[0])) != np.array(search(seeds[1])))


@pytest.mark.tensorflow_only
def test_xla_compiles_sampling_on_tensorflow():
    import tensorflow as tf

    search = tf.function(lambda seed: letters(seed, rows=11, length=6), jit_compile=True)
    first, again, other = (np.array(search(tf.constant(seed))) for seed in ([7, 0], [7, 0], [7, 1]))
    np.testing.assert_array_equal(first, again)
    # 12 steps of 11 rows: two are equal by chance with probability 12 * 11 / 2 * 26 ** -11 = 2e-14.
    assert len({tuple(column) for column in [*first.T, *other.T]}) == 12


def test_a_very_low_temperature_is_greedy():
    model = HistoryModel(seed=31, sentences=5, vocab_size=6, max_length=4)
    cold = sample(model.next_logits, model.state(range(5)), search_space([4] * 5, 4), seed=1, temperature=1e-4)
    greedy = greedy_search(model.next_logits, model.state(range(5)), search_space([4] * 5, 4))
    np.testing.assert_array_equal(cold.tokens, greedy.tokens)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature must be a finite number greater than 0. Received: temperature=0.0"),
        ({"temperature": float("nan")}, "Received: temperature=nan. For the most .* use greedy search"),
        ({"top_k": -1}, "top_k must be an int of at least 0. Received: top_k=-1. Pass 0 to keep every token"),
        ({"top_k": 2.0}, "top_k must be an int of at least 0. Received: top_k=2.0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1. Received: top_p=0.0"),
        ({"top_p": 1.5}, "Received: top_p=1.5"),
        ({"seed": np.array([1, 2, 3])}, r"seed must be an int or an integer tensor of shape \(2,\).* shape \(3,\)"),
        ({"seed": np.array([1.0, 2.0], "float32")}, r"Received: shape \(2,\) and dtype float32. Pass one seed"),
        ({"seed": 2**64}, r"seed must be from -2\*\*63 to 2\*\*64 - 1. Received: seed=18446744073709551616"),
    ],
)
def test_arguments_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        first_tokens(3, **options)
