"""A model's searches: they follow the `DecodingConfig`, and find what passes over whole sequences find."""

import keras
import numpy as np
import pytest
from small_models import PAD, SOURCE, START, V, logits_of, small_config, small_transformer

from kformer.config import DecodingConfig
from kformer.text.searcher import ROOM_STEP, Searcher, compiled_search

END = 2
LIMITS = np.array([6, 4], "int32")


def arrays(result):
    return [keras.ops.convert_to_numpy(part) for part in result]


def searcher(decoding, **changes):
    changes = {"num_encoder_layers": 1, "num_decoder_layers": 2, **changes}
    config = small_config(pad_id=PAD, start_id=START, end_id=END, **changes)
    return Searcher(small_transformer(**changes), config, decoding)


class TestWholePasses:
    """Compiled searches with random weights, in more steps than the caches have room for at first."""

    LIMITS = np.array([20, 17], "int32")
    MIN_LENGTH = 17  # so that all steps up to the shorter limit are taken

    def found(self, beam_size, positions):
        """Tokens (B, T), scores (B,) and lengths (B,) of a search; and the log probabilities (B, T, V) of each token.

        The log probabilities are those of one pass over the whole sequences.
        """
        assert self.LIMITS.min() > ROOM_STEP
        decoding = DecodingConfig(
            beam_size=beam_size, length_penalty=1.3, max_extra_length=14, min_length=self.MIN_LENGTH
        )
        search = searcher(decoding, positional_encoding=positions, max_length=20)
        tokens, scores, lengths = (part[:, 0] for part in arrays(compiled_search(search)(SOURCE, self.LIMITS)))
        target_in = np.concatenate([np.full((2, 1), START, "int32"), tokens[:, :-1]], axis=1)
        logits = logits_of(search.model, SOURCE, target_in)
        return tokens, scores, lengths, logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))

    @pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
    def test_greedy_search_takes_the_most_probable_token_at_every_position(self, positions):
        tokens, scores, lengths, log_probs = self.found(1, positions)
        log_probs[:, :, [PAD, START]] = -np.inf
        log_probs[:, : self.MIN_LENGTH, END] = -np.inf
        for sentence, limit in enumerate(self.LIMITS):
            best = log_probs[sentence].argmax(axis=-1)
            length = next((step + 1 for step in range(limit) if best[step] == END), limit)
            np.testing.assert_array_equal(tokens[sentence], [*best[:length], *[PAD] * (20 - length)])
            assert lengths[sentence] == length
            np.testing.assert_allclose(scores[sentence], log_probs[sentence, :length].max(axis=-1).sum(), rtol=1e-4)

    @pytest.mark.parametrize(
        "positions", ["sinusoidal", "learned", "rotary", "relative", "relative_values", "relative_buckets"]
    )
    def test_beam_search_gives_its_hypothesis_the_score_of_the_whole_pass(self, positions):
        tokens, scores, lengths, log_probs = self.found(3, positions)
        assert np.all(lengths >= self.MIN_LENGTH)
        for sentence, length in enumerate(lengths):
            gains = log_probs[sentence, np.arange(length), tokens[sentence, :length]]
            np.testing.assert_allclose(scores[sentence], gains.sum() / ((5 + length) / 6) ** 1.3, rtol=1e-4)


def test_compiled_follows_the_weights():
    search = searcher(DecodingConfig(beam_size=1, max_extra_length=3))
    find = compiled_search(search)
    before = arrays(find(SOURCE, LIMITS))
    search.model.set_weights([-weight for weight in search.model.get_weights()])
    after = arrays(find(SOURCE, LIMITS))
    np.testing.assert_allclose(after[1], arrays(search.find(SOURCE, LIMITS))[1], rtol=1e-5)
    assert not np.allclose(before[1], after[1])


PROBABILITIES = {END: 0.5, 3: 0.3, 4: 0.2}


def constant_searcher(decoding):
    """A searcher whose model gives the next token these probabilities, whatever stands before it."""
    search = searcher(decoding, embedding_tying="target", num_decoder_layers=1)
    logits = np.full(V, -30.0)  # the other tokens have probability 1e-13
    logits[list(PROBABILITIES)] = np.log(list(PROBABILITIES.values()))
    for variable in search.model.trainable_variables:
        # The last layer norm gives its beta, a vector of ones. So a token's logit is the sum of its row in the matrix.
        variable.assign(np.full(variable.shape, 1.0 if variable.name == "beta" else 0.0))
    embeddings = np.zeros((V, search.config.d_model))
    embeddings[:, 0] = logits
    search.model.get_layer("target_embedding").embeddings.assign(embeddings)
    return search


@pytest.mark.parametrize("beam_size", [1, 3])
def test_min_length_limits_and_length_penalty_reach_the_search(beam_size):
    decoding = DecodingConfig(beam_size=beam_size, min_length=2, length_penalty=2.0, max_extra_length=3)
    tokens, scores, lengths = arrays(compiled_search(constant_searcher(decoding))(SOURCE, np.array([6, 2])))
    # The end token may come after 2 others; in the second translation after one, so that it stands within the limit.
    assert tokens.shape == (2, 1, 9)  # a source of 6 tokens and an end token, and 3 more tokens than the 6
    np.testing.assert_array_equal(tokens[:, 0, :4], [[3, 3, END, PAD], [3, END, PAD, PAD]])
    np.testing.assert_array_equal(lengths, [[3], [2]])
    expected = np.array([[2 * np.log(0.3) + np.log(0.5)], [np.log(0.3) + np.log(0.5)]])
    if beam_size > 1:  # Longer translations score less: 3 3 3 end has (3 log 0.3 + log 0.5) / (9 / 6)^2 = -1.9.
        expected /= ((5 + lengths) / 6) ** 2.0  # -1.7, -1.8
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_no_repeat_ngram_size_reaches_the_search(beam_size):
    decoding = DecodingConfig(beam_size=beam_size, min_length=2, no_repeat_ngram_size=1, max_extra_length=3)
    tokens, _, _ = arrays(compiled_search(constant_searcher(decoding))(SOURCE, LIMITS))
    # Two tokens before the end, of which the second may not be 3 again. As probable is 4 3, from the second beam.
    np.testing.assert_array_equal(tokens[:, 0, :4], [[3, 4, END, PAD]] * 2)


def test_the_buffer_is_no_longer_than_max_length():
    search = constant_searcher(DecodingConfig(beam_size=1, min_length=4, max_length=5, max_extra_length=3))
    tokens, _, lengths = arrays(compiled_search(search)(SOURCE, LIMITS))
    assert tokens.shape == (2, 1, 5)
    np.testing.assert_array_equal(lengths, [[5], [4]])


@pytest.mark.tensorflow_only  # the caches of a search that is not compiled grow
def test_n_best_reaches_the_search():
    search = constant_searcher(DecodingConfig(beam_size=3, length_penalty=0.0, max_extra_length=3))
    tokens, scores, _ = arrays(search.find(SOURCE[:1], LIMITS[:1], n_best=2))
    np.testing.assert_array_equal(tokens[0, :, :2], [[END, PAD], [3, END]])
    np.testing.assert_allclose(scores, np.log([[0.5, 0.3 * 0.5]]), rtol=1e-5)


SAMPLING = {"seed": 5, "temperature": 1.0, "top_k": 0, "top_p": 1.0}


@pytest.mark.tensorflow_only
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {END, 3, 4}),
        ({"top_k": 2}, {END, 3}),
        ({"top_p": 0.6}, {END, 3}),
        # 0.5 / 0.3 to the power of 100.
        ({"temperature": 0.01}, {END}),
        # The tenth power of 1e-13 is 0.05: the 18 other letters come, too.
        ({"temperature": 10.0}, set(range(END, V))),
    ],
)
def test_sampling_options_reach_the_search(options, expected):
    search = constant_searcher(DecodingConfig(max_extra_length=3))
    source = np.tile(SOURCE[:1], (500, 1))
    tokens, _, _ = arrays(search.sample(source, np.ones(500, "int32"), **{**SAMPLING, **options}))
    assert set(tokens[:, 0, 0]) == expected


@pytest.mark.tensorflow_only
def test_samples_repeat_no_ngram():
    search = constant_searcher(DecodingConfig(min_length=2, no_repeat_ngram_size=1, max_extra_length=3))
    source, limits = np.tile(SOURCE[:1], (50, 1)), np.full(50, 3, "int32")
    tokens, _, _ = arrays(search.sample(source, limits, **SAMPLING))
    assert {tuple(row[:3]) for row in tokens[:, 0]} == {(3, 4, END), (4, 3, END)}


@pytest.mark.tensorflow_only
def test_sampling_follows_min_length_and_seed():
    search = constant_searcher(DecodingConfig(min_length=2, max_extra_length=3))
    source, limits = np.tile(SOURCE[:1], (50, 1)), np.full(50, 3, "int32")
    first, again, other = (
        arrays(search.sample(source, limits, **{**SAMPLING, "seed": seed}))[0][:, 0, :3] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)
    assert set(first[:, :2].flat) == {3, 4}
    assert set(first[:, 2]) == {END, 3, 4}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 2**64}, "seed must be from"),
        ({"temperature": 0.0}, "temperature must be a finite number greater than 0. Received: temperature=0.0"),
        ({"top_k": -1}, "top_k must be an int of at least 0. Received: top_k=-1"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1. Received: top_p=1.5"),
    ],
)
def test_sampling_options_are_checked_before_the_model_runs(options, message):
    without_model = Searcher(None, small_config(), DecodingConfig())
    with pytest.raises(ValueError, match=message):
        without_model.sample(SOURCE, LIMITS, **{**SAMPLING, **options})


@pytest.mark.parametrize("beam_size", [1, 2])
def test_more_hypotheses_than_beams_are_refused_before_the_model_runs(beam_size):
    without_model = Searcher(None, small_config(), DecodingConfig(beam_size=beam_size))
    with pytest.raises(
        ValueError, match=f"n_best must be from 1 to beam_size. Received: n_best=3, beam_size={beam_size}"
    ):
        without_model.find(SOURCE, LIMITS, n_best=3)
