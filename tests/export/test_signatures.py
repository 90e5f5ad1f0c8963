"""The signatures of an export beside `serving_default`, and what they agree with."""

import numpy as np
import pytest
import tensorflow as tf
import toy
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.config import DecodingConfig
from kformer.export.saved_model import export_saved_model
from kformer.tasks.translator import Translator

pytestmark = pytest.mark.tensorflow_only
TEXTS = [source for source, _ in toy.corpus().test[:11]]


SMALLER = [pytest.param(precision, marks=pytest.mark.slow) for precision in ("bfloat16", "int8")]


@pytest.fixture(scope="module", params=["float32", *SMALLER])
def exported(request, tmp_path_factory):
    if request.param == "float32":
        path = request.getfixturevalue("numbers_export") / "1"
    else:
        translator = request.getfixturevalue("numbers_translator")
        folder = tmp_path_factory.mktemp("export")
        path = export_saved_model(translator, folder, precision=request.param, signatures=Translator.signatures)
    loaded = tf.saved_model.load(str(path))
    return request.param, dict(loaded.signatures), loaded


def test_inputs_and_outputs_begin_with_the_batch_and_none_is_encoded_by_rest(exported):
    _, signatures, _ = exported
    assert {*signatures} == {"serving_default", *Translator.signatures}
    for name, signature in signatures.items():
        tensors = {**signature.structured_input_signature[1], **signature.structured_outputs}
        scalars = [key for key, spec in tensors.items() if spec.shape.rank == 0]
        options = ["length_penalty", "max_length", "min_length", "seed", "temperature", "top_k", "top_p"]
        assert sorted(scalars) == (options if name == "translate_with_options" else [])
        assert all(spec.shape[0] is None for key, spec in tensors.items() if key not in scalars)
        assert not [key for key in tensors if key.endswith("_bytes")]


def test_n_best_begins_with_the_best(exported, numbers_translator):
    _, signatures, _ = exported
    best, found = signatures["serving_default"](text=TEXTS), signatures["n_best"](text=TEXTS)
    assert found["translation"].shape == (len(TEXTS), numbers_translator.decoding.beam_size)
    assert found["translation"].numpy()[:, 0].tolist() == best["translation"].numpy().tolist()
    np.testing.assert_allclose(found["score"][:, 0], best["score"], atol=1e-5)
    assert np.all(np.diff(found["score"], axis=1) <= 0)


def test_the_score_of_a_translation_is_that_of_the_search(exported):
    precision, signatures, _ = exported
    best = signatures["serving_default"](text=TEXTS)
    found = signatures["score"](text=TEXTS, translation=best["translation"])
    # A step and the whole sequence sum in other orders; int8 and bfloat16 round what they sum.
    tolerance = {"float32": 1e-5, "bfloat16": 0.02, "int8": 0.05}[precision]
    np.testing.assert_allclose(found["score"], best["score"], atol=tolerance)
    tokens = np.array([len(text.split()) + 1 for text in best["translation"].numpy()])  # a token a word, and the end
    assert found["tokens"].numpy().tolist() == tokens.tolist()
    np.testing.assert_allclose(found["log_probability"], found["score"] * ((5 + tokens) / 6) ** 0.6, rtol=1e-5)


def test_a_wrong_translation_has_a_low_score(exported):
    _, signatures, _ = exported
    texts = ["one two", "one two"]
    right, wrong = signatures["score"](text=texts, translation=["dos uno", "uno dos"])["score"].numpy()
    assert right > wrong + 1


def test_a_pair_has_the_same_score_alone_and_among_longer_ones(numbers_translator):
    sources, targets = zip(*toy.corpus().test[:70], strict=True)
    together = numbers_translator.score(tf.constant(sources), tf.constant(targets))
    for index in (0, 33, 69):
        alone = numbers_translator.score(tf.constant([sources[index]]), tf.constant([targets[index]]))
        for name, value in alone.items():
            np.testing.assert_allclose(value[0], together[name][index], rtol=1e-4, atol=1e-5)


def test_what_the_model_does_not_read_is_told(numbers_translator):
    short = Translator(
        numbers_translator.model,
        numbers_translator.config,
        numbers_translator.source_tokenizer,
        numbers_translator.target_tokenizer,
        DecodingConfig(max_source_length=3, max_length=4),
    )
    texts = tf.constant(["one two", "one two three", "one two"])
    found = short.score(texts, tf.constant(["dos uno", "dos uno", "uno dos tres cuatro"]))
    assert found["truncated"].numpy().tolist() == [False, True, True]
    assert found["tokens"].numpy().tolist() == [3, 3, 4]


def test_of_a_translation_longer_than_any_search_gives_the_rest_is_not_looked_at(numbers_translator):
    """Attention over all tokens of a long text would take more memory than a server has."""
    short = Translator(
        numbers_translator.model,
        numbers_translator.config,
        numbers_translator.source_tokenizer,
        numbers_translator.target_tokenizer,
        DecodingConfig(max_source_length=3, max_extra_length=5),
    )
    found = short.score(tf.constant(["one two"] * 2), tf.constant(["uno " * 6, "uno " * 1000]))
    assert found["truncated"].numpy().tolist() == [False, True]
    assert found["tokens"].numpy().tolist() == [7, 7]  # a source of 2 and its end, and 5 more; the end is one of them
    assert float(found["score"][0]) == pytest.approx(float(found["score"][1]), rel=1e-5)


def test_an_empty_batch_has_no_scores(numbers_translator):
    nothing = tf.constant([], tf.string)
    assert {name: value.shape for name, value in numbers_translator.score(nothing, nothing).items()} == {
        name: (0,) for name in ("log_probability", "score", "tokens", "truncated")
    }


def test_wrong_signatures_are_refused_before_the_work(numbers_translator, tmp_path):
    with pytest.raises(
        ValueError, match=r"no signature 'n_bset'.* may have: n_best, score, .* Did you mean 'n_best'\?"
    ):
        export_saved_model(numbers_translator, tmp_path, signatures=["n_bset"])
    with pytest.raises(ValueError, match="The variant xla has serving_default alone. Received: score"):
        export_saved_model(numbers_translator, tmp_path, variant="xla", signatures=["score"])
    assert not list(tmp_path.iterdir())


def test_the_command_hands_its_signatures_on(numbers_run, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("kformer.export.target.export", lambda translator, folder, target: asked.append(target))
    arguments = ["export", str(numbers_run), str(tmp_path), "--signature", "n_best", "--signature", "score"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert asked[0].signatures == ("n_best", "score")
    assert "There is no signature 'x'" in str(CliRunner().invoke(app, [*arguments, "--signature", "x"]).exception)
