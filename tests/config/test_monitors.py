"""The table of metrics beside what computes them."""

import keras
import numpy as np
import pytest

from kformer.config import MONITORS, TrainingConfig, TransformerConfig
from kformer.evaluation.metrics import bleu_and_chrf, phoneme_error_rate, translation_edit_rate, word_error_rate
from kformer.training.compile import compile_model

pytestmark = pytest.mark.tensorflow_only


def test_a_model_has_the_metrics_that_need_no_translations():
    model = keras.Sequential([keras.Input((None,), dtype="int32"), keras.layers.Embedding(7, 7)])
    compile_model(model, TransformerConfig(), TrainingConfig(precision="float32"))
    ids = np.array([[1, 2]], "int32")
    found = model.evaluate(ids, ids, return_dict=True, verbose=0)
    assert {monitor.metric for monitor in MONITORS.values() if monitor.translations is None} <= set(found)


def test_translations_have_the_others():
    texts = ["a b c d"], [["a b c d"]]
    of_sentences = {**bleu_and_chrf(*texts), **translation_edit_rate(*texts)}
    found = {"sentences": of_sentences, "symbols": {**word_error_rate(*texts), **phoneme_error_rate(*texts)}}
    for monitor in MONITORS.values():
        if monitor.translations is not None:
            # All of it is right, so the metric is the best there is.
            assert found[monitor.translations][monitor.metric] == pytest.approx({"min": 0, "max": 100}[monitor.mode])


@pytest.mark.parametrize(
    ("symbols", "names"),
    [
        (False, ["loss", "perplexity", "accuracy", "bleu", "chrf", "ter"]),
        (True, ["loss", "perplexity", "accuracy", "word_error_rate", "phoneme_error_rate"]),
    ],
)
def test_a_corpus_has_the_metrics_of_its_texts(symbols, names):
    assert [name for name, monitor in MONITORS.items() if monitor.suits(symbols)] == names


@pytest.mark.parametrize(("monitor", "refused"), [("loss", False), ("accuracy", False), ("chrf", True)])
def test_where_translations_tell_the_best_weights_some_must_be_scored(monitor, refused):
    if refused:
        with pytest.raises(ValueError, match="at least 1 if `monitor` scores translations. Received: scored_sources=0"):
            TrainingConfig(monitor=monitor, scored_sources=0)
    else:
        assert TrainingConfig(monitor=monitor, scored_sources=0).scored_sources == 0
