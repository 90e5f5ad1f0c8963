"""Which weights of an earlier run a new run begins with."""

import numpy as np
import pytest
import toy
from model_weights import arrays_of

from kformer.config import DecodingConfig
from kformer.models import build_model
from kformer.runs.create import create_run
from kformer.runs.folder import RunFolder
from kformer.tokenizers import SymbolTokenizer
from kformer.training.first_weights import load_first_weights

pytestmark = pytest.mark.tensorflow_only

WORDS = SymbolTokenizer(list(toy.WORDS))


def classifier(labels):
    """The configuration of a classifier, and its model with random weights."""
    sizes = {"source_vocab_size": WORDS.vocab_size, "target_vocab_size": labels.vocab_size, "num_decoder_layers": 0}
    config = toy.TRANSFORMER.replace(task="classify", embedding_tying="none", **sizes)
    return config, build_model(config)


@pytest.mark.parametrize(("labels", "same_labels"), [(["even", "odd"], True), (["red", "blue"], False)])
def test_a_classifier_of_other_labels_begins_with_the_encoder_and_a_new_last_layer(labels, same_labels, tmp_path):
    """As many other labels have a last layer of the same size, which has learned something else."""
    known = SymbolTokenizer(["even", "odd"])
    config, earlier = classifier(known)
    corpus = {"name": "numbers", "symbols": False}
    create_run(RunFolder(tmp_path / "run"), config, (WORDS, known), DecodingConfig(), corpus, model=earlier)
    _, model = classifier(SymbolTokenizer(labels))
    old, before = arrays_of(earlier), arrays_of(model)
    load_first_weights(RunFolder(tmp_path / "run"), model, "classify", SymbolTokenizer(labels))
    for path, found in arrays_of(model).items():
        is_kept = same_labels or not path.startswith("classes/")
        np.testing.assert_array_equal(found, old[path] if is_kept else before[path], err_msg=path)
    assert not np.array_equal(old["classes/kernel"], before["classes/kernel"])
