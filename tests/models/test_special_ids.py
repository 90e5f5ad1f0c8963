"""A start id that is also the pad id (Marian, T5) or the end id (BART), in whole models."""

import keras
import numpy as np
import pytest
from small_models import PAD, SOURCE, B, T, V, logits_of, small_config, small_transformer
from test_start_decoding import all_at_once, stepwise

from kformer.config import DecodingConfig
from kformer.data.arrangements import Rows, shifted
from kformer.losses import LabelSmoothedCrossEntropy
from kformer.models import build_classifier, start_decoding
from kformer.text.searcher import Searcher

END = 2
STARTS = pytest.mark.parametrize("start", [PAD, END], ids=["as Marian", "as BART"])
TARGET = np.array([[14, 6, 20, 9, END], [3, END, PAD, PAD, PAD]], "int32")


@STARTS
def test_training_reads_the_start_and_predicts_the_end_but_no_padding(start):
    target_in = shifted(Rows(SOURCE, TARGET, PAD, PAD, start))
    assert target_in.tolist() == [[start, 14, 6, 20, 9], [start, 3, PAD, PAD, PAD]]
    model = small_transformer(start_id=start)
    log_probs = keras.ops.convert_to_numpy(keras.ops.log_softmax(logits_of(model, SOURCE, target_in)))
    of_tokens = [log_probs[row, t, TARGET[row, t]] for row, t in np.argwhere(TARGET != PAD)]
    assert len(of_tokens) == 7  # the ends are among them
    loss = LabelSmoothedCrossEntropy(epsilon=0.0, pad_id=PAD)(TARGET, logits_of(model, SOURCE, target_in))
    np.testing.assert_allclose(loss, -np.mean(of_tokens), rtol=1e-5)


@STARTS
def test_a_search_begins_with_the_start_and_stops_at_the_end(start):
    model = small_transformer(start_id=start, softmax_bias=True, num_encoder_layers=1, num_decoder_layers=1)
    tokens = np.random.default_rng(6).integers(3, V, (B, T)).astype("int32")
    tokens[:, 0] = start
    logits, _ = stepwise(*start_decoding(model, SOURCE, max_length=T), tokens)
    np.testing.assert_allclose(logits, all_at_once(model, tokens), atol=2e-5)

    decoding = DecodingConfig(beam_size=1, max_extra_length=5)
    search = Searcher(model, small_config(start_id=start, end_id=END), decoding)
    found, _, lengths = search.find(SOURCE, np.array([5, 4], "int32"))
    for row, limit in enumerate((5, 4)):
        written = [start]
        while len(written) <= limit and (len(written) == 1 or written[-1] != END):
            behind = [*written, 3]  # what comes behind does not matter
            here = logits_of(model, SOURCE[row : row + 1], np.array([behind], "int32"))[0, -2]
            here[[PAD, *([start] if start != END else [])]] = -np.inf
            written.append(int(here.argmax()))
        assert np.array(found)[row, 0, : int(lengths[row, 0])].tolist() == written[1:]

    model.get_layer("logits").bias.assign(np.where(np.arange(V) == END, 1000.0, 0.0))
    assert np.array(search.find(SOURCE, np.array([5, 4], "int32")).lengths).tolist() == [[1], [1]]


@STARTS
def test_an_encoder_only_model_refuses_it(start):
    config = small_config(start_id=start, num_decoder_layers=0, embedding_tying="none")
    with pytest.raises(ValueError, match="start_id must differ from pad_id and end_id: .* Choose another start_id"):
        build_classifier(config)
