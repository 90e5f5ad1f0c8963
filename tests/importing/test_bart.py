"""BART of Hugging Face: its vocabulary, the forms of its files, what is refused, and what a run folder can do."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from importing.examples import FOLDER, TOLERANCE, Example

import kformer
from kformer.data import Corpus, load_corpus
from kformer.evaluation.evaluate import score
from kformer.importing.run import import_model
from kformer.inference import Model
from kformer.tokenizers import load_tokenizers

pytestmark = pytest.mark.tensorflow_only
FIRST, END, SIZE = 0, 2, 432


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    return Example("bart", tmp_path_factory.mktemp("runs"))


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / "bart", tmp_path / "folder")


def edit(folder, name, **fields):
    path = folder / name
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps({**content, **fields}), encoding="utf-8")


def one_file(folder):
    """Puts the vocabulary into tokenizer.json alone. Older files lack `use_regex`, which newer ones have."""
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    merges = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    added = [{"id": vocabulary[token], "content": token, "special": True} for token in special]
    edit(
        folder,
        "tokenizer.json",
        added_tokens=added,
        normalizer=None,
        pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        post_processor={"type": "RobertaProcessing", "sep": ["</s>", END], "cls": ["<s>", FIRST]},
        model={"type": "BPE", "vocab": vocabulary, "merges": [merge.split(" ") for merge in merges]},
    )
    (folder / "vocab.json").unlink()
    (folder / "merges.txt").unlink()


def test_a_token_stands_before_and_behind_each_source_and_the_mask_has_no_id(example):
    source, target = load_tokenizers(example.run.tokenizer_folder)
    assert source is target
    assert source.vocab_size == SIZE
    assert "<mask>" not in source.pieces
    assert source.closing_ids == (END,)
    assert [ids[0] for ids in source.tokenize(["a", " a", "</s>"]).to_list()] == [FIRST] * 3
    assert source.tokenize([""]).to_list() == [[]]
    assert source.detokenize([[END, FIRST, *source.tokenize([" a b "]).to_list()[0], END, 7]]).numpy()[0] == b"a b"


def test_texts_that_are_no_single_lines_have_the_same_ids_too(example):
    source, _ = load_tokenizers(example.run.tokenizer_folder)
    found = source.tokenize(example.expected["more_lines"]).to_list()
    assert [[*ids, END] for ids in found] == example.expected["more_ids"]


def test_the_search_is_that_of_the_folder(example):
    decoding = example.run.decoding_config()
    assert (decoding.beam_size, decoding.length_penalty, decoding.early_stopping) == (4, 2.0, True)
    assert (decoding.no_repeat_ngram_size, decoding.first_id, decoding.forced_end) == (3, FIRST, True)
    assert (decoding.max_length, decoding.min_length) == (28, 5)  # transformers counts the start token, too
    assert decoding.max_source_length == example.run.transformer_config().max_length == 131


def test_a_source_is_read_as_a_whole_as_far_as_there_are_positions(folder, tmp_path):
    path, name = folder / "model.safetensors", "model.{}.embed_positions.weight"
    table = {name.format(side): np.zeros((602, 28), "float32") for side in ("encoder", "decoder")}
    safetensors.numpy.save_file({**safetensors.numpy.load_file(path), **table}, path)
    edit(folder, "config.json", max_position_embeddings=600)
    assert import_model(folder, tmp_path / "run").decoding_config().max_source_length == 600


def test_numbers_of_new_tokens_do_not_count_the_start_token(folder, tmp_path):
    edit(folder, "generation_config.json", max_new_tokens=17, min_new_tokens=7)
    decoding = import_model(folder, tmp_path / "run").decoding_config()
    assert (decoding.max_length, decoding.min_length) == (17, 7)


def test_what_says_nothing_or_the_same_is_passed_over(example, folder, tmp_path):
    edit(folder, "generation_config.json", suppress_tokens=[], eos_token_id=[END], forced_eos_token_id=[END])
    decoding = import_model(folder, tmp_path / "run").decoding_config()
    assert decoding == example.run.decoding_config().replace(forced_end=True)


def test_the_first_token_may_be_asked_for_as_by_old_files(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    (folder / "generation_config.json").unlink()
    edit(folder, "config.json", force_bos_token_to_be_generated=True)
    assert import_model(folder, tmp_path / "run").decoding_config().first_id == config["bos_token_id"]
    edit(folder, "config.json", force_bos_token_to_be_generated=False)
    assert import_model(folder, tmp_path / "other").decoding_config().first_id is None


def test_the_vocabulary_may_be_in_tokenizer_json(example, folder, tmp_path):
    one_file(folder)
    source, _ = load_tokenizers(import_model(folder, tmp_path / "run").tokenizer_folder)
    assert [[*ids, END] for ids in source.tokenize(example.expected["lines"]).to_list()] == example.expected["ids"]
    assert source.pieces == load_tokenizers(example.run.tokenizer_folder)[0].pieces


def test_a_file_of_the_model_without_its_softmax_has_the_same_logits(example, folder, tmp_path):
    """As that of bart-base: its names lack a beginning, and there is no bias."""
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    bias = tensors.pop("final_logits_bias")
    safetensors.numpy.save_file({name.removeprefix("model."): tensor for name, tensor in tensors.items()}, path)
    bare = object.__new__(Example)
    bare.expected, bare.run = example.expected, import_model(folder, tmp_path / "run")
    np.testing.assert_allclose(bare.translation_logits() + bias, example.expected["logits"], atol=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("config.json", "normalize_before", True),
        ("config.json", "add_final_layer_norm", True),
        ("config.json", "static_position_embeddings", True),
        ("tokenizer_config.json", "tokenizer_class", "GPT2Tokenizer"),
        ("tokenizer_config.json", "add_prefix_space", True),
        ("generation_config.json", "repetition_penalty", 1.2),
        ("generation_config.json", "num_beam_groups", 2),
        ("generation_config.json", "encoder_no_repeat_ngram_size", 3),
        ("generation_config.json", "exponential_decay_length_penalty", [5, 1.1]),
        ("generation_config.json", "stop_strings", ["."]),
        ("generation_config.json", "early_stopping", "never"),
        ("generation_config.json", "bad_words_ids", [[7]]),
        ("generation_config.json", "bad_words_ids", [[END]]),  # with which translations start, too
        ("generation_config.json", "penalty_alpha", 0.6),
        ("generation_config.json", "decoder_start_token_id", 0),
        ("generation_config.json", "forced_eos_token_id", 7),
        ("generation_config.json", "no_repeat_ngram_size", 1),  # which counts the start: there would be no end
    ],
)
def test_what_cannot_be_represented_is_refused_by_its_name(folder, tmp_path, name, field, value):
    edit(folder, name, **{field: value})
    with pytest.raises(ValueError, match=f"{field} in .*{name}"):
        import_model(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_with_other_special_tokens_is_refused(folder, tmp_path):
    edit(folder, "tokenizer_config.json", cls_token="[CLS]")
    with pytest.raises(ValueError, match=r"no piece '\[CLS\]', the cls_token of .*tokenizer_config.json"):
        import_model(folder, tmp_path / "run")
    edit(folder, "tokenizer_config.json", cls_token={"content": "<s>"}, sep_token="<pad>")
    with pytest.raises(ValueError, match="ends with the token 1, a target with 2 .*only one end"):
        import_model(folder, tmp_path / "run")


def test_a_tokenizer_that_puts_nothing_before_a_text_is_refused(folder, tmp_path):
    one_file(folder)
    edit(folder, "tokenizer.json", post_processor={"type": "ByteLevel"})
    with pytest.raises(ValueError, match=r"post_processor.type in .*tokenizer.json is 'ByteLevel'"):
        import_model(folder, tmp_path / "run")


def test_words_that_are_found_in_another_way_are_refused(folder, tmp_path):
    one_file(folder)
    edit(folder, "tokenizer.json", pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "use_regex": False})
    with pytest.raises(ValueError, match=r"pre_tokenizer.use_regex in .*tokenizer.json is False"):
        import_model(folder, tmp_path / "run")


def test_only_a_special_token_may_have_an_id_beyond_the_vocabulary(folder, tmp_path):
    edit(folder, "vocab.json", more=SIZE)
    with pytest.raises(ValueError, match=f"gives 'more' the id {SIZE}.* files are of different models"):
        import_model(folder, tmp_path / "run")


def test_a_classifier_is_refused(folder, tmp_path):
    path = folder / "model.safetensors"
    head = {"classification_head.dense.weight": np.zeros((28, 28), "float32")}
    safetensors.numpy.save_file({**safetensors.numpy.load_file(path), **head}, path)
    with pytest.raises(ValueError, match="hold the tensor classification_head.dense.weight"):
        import_model(folder, tmp_path / "run")


@pytest.mark.slow
def test_a_run_is_evaluated_exported_and_fine_tuned(example, tmp_path):
    lines, expected = example.expected["lines"][:12], example.expected["beam"][:12]
    translator = kformer.Translator.from_run(example.run.path)
    assert translator([*lines, "", "  "]) == [*expected, "", ""]
    found = score(Model(example.run.path), list(zip(lines, expected, strict=True)))
    assert found["bleu"] == pytest.approx(100)
    exported = kformer.export_saved_model(translator, tmp_path / "exported", signatures=["translate_detailed"])
    served = Model(exported)
    assert [answers[0].text for answers in served([line.encode() for line in lines])] == expected
    details = translator.translate_detailed(tf.constant(lines[:1]))
    starts, ends = details["source_start"][0].numpy(), details["source_end"][0].numpy()
    written = lines[0].encode()
    assert b"".join(written[start:end] for start, end in zip(starts, ends, strict=True)) == written


@pytest.mark.slow
def test_fine_tuning_begins_with_the_imported_model(example, tmp_path):
    verses = load_corpus("bible-en-es")
    corpus = Corpus("verses", list(verses.train[:200]), list(verses.valid[:20]), [])
    training = kformer.TrainingConfig(
        max_steps=3, warmup_steps=1, learning_rate_scale=1e-6, tokens_per_batch=512, validation_steps=3, max_length=100
    )
    transformer = example.run.transformer_config()
    kformer.train(corpus, tmp_path / "run", transformer, training, initialize_from=example.run.path)
    tuned = kformer.Translator.from_run(tmp_path / "run", example.run.decoding_config())
    assert tuned.config == transformer
    assert tuned(example.expected["lines"][:12]) == example.expected["beam"][:12]
