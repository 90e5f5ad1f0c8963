"""What holds for every tokenizer: graphs, edge cases, files, SavedModels."""

import io
import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import keras_nlp
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from kformer.tokenizers import (
    ByteBPETokenizer,
    KerasNLPTokenizer,
    LlamaTokenizer,
    PieceVocabularyTokenizer,
    SentencePieceTokenizer,
    SymbolTokenizer,
    Tokenizer,
    WordPieceTokenizer,
    WordTokenizer,
    load_tokenizer,
    load_tokenizers,
    save_tokenizer,
    save_tokenizers,
)
from kformer.tokenizers.byte_bpe import byte_characters
from kformer.tokenizers.text_ops import check_keras, check_tensorflow_text


def byte_tokenizer(**options: Any) -> ByteBPETokenizer:
    pieces = [*byte_characters(), "AE", "<pad>", "<start>", "<end>", "<s>"]
    return ByteBPETokenizer(pieces, ["A E"], pad_id=257, start_id=258, end_id=259, **options)


def llama_tokenizer() -> LlamaTokenizer:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["K AE T", "low lower lowest"]),
        model_writer=model,
        vocab_size=280,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [processor.id_to_piece(number) for number in range(processor.vocab_size())]
    return LlamaTokenizer(model.getvalue(), pieces, pad_id=0, start_id=1, end_id=2, unknown_id=0)


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "K", "AE", "T"]


def piece_vocabulary(bpe: SentencePieceTokenizer, **options: Any) -> PieceVocabularyTokenizer:
    """The pieces of another model, in reverse order and without some of them."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=bpe.model_bytes)
    pieces = [
        "</s>",
        "<unk>",
        *(processor.id_to_piece(number) for number in range(319, 3, -1)),
        "<pad>",
        "<s>",
        ">>es<<",
    ]
    return PieceVocabularyTokenizer(bpe.model_bytes, pieces, len(pieces) - 3, len(pieces) - 2, 0, 1, **options)


MAKERS: dict[str, Callable[[SentencePieceTokenizer], Tokenizer]] = {
    "sentencepiece": lambda bpe: bpe,
    "piece vocabulary": piece_vocabulary,
    "piece vocabulary with codes": lambda bpe: piece_vocabulary(bpe, reads_language_codes=True),
    "piece vocabulary of a language": lambda bpe: piece_vocabulary(bpe, first_ids=[320]),
    "symbols": lambda bpe: SymbolTokenizer(["K", "AE", "T"]),
    "bytes": lambda bpe: byte_tokenizer(),
    "bytes with a first token": lambda bpe: byte_tokenizer(first_ids=[260], trims_ends=True),
    "llama": lambda bpe: llama_tokenizer(),
    "words": lambda bpe: WordTokenizer(["K", "AE", "T", "<", ">"]),
    "wordpiece": lambda bpe: WordPieceTokenizer(WORDS, 0, 2, 3, 1, 4, lowercase=False),
    "keras bytes": lambda bpe: KerasNLPTokenizer(keras_nlp.tokenizers.ByteTokenizer(lowercase=False)),
    "keras words": lambda bpe: KerasNLPTokenizer(keras_nlp.tokenizers.WordPieceTokenizer(WORDS)),
    "keras sentencepiece": lambda bpe: KerasNLPTokenizer(keras_nlp.tokenizers.SentencePieceTokenizer(bpe.model_bytes)),
}
TEXT_OPS = {  # of tensorflow-text; the rest must be core TensorFlow
    "NormalizeUTF8",
    "SentencepieceOp",
    "SentencepieceTokenizeOp",
    "SentencepieceDetokenizeOp",
    "RegexSplitWithOffsets",
    "FastWordpieceTokenizeWithOffsets",
    "TFText>FastWordpieceTokenizeWithOffsets",
    "TFText>FastWordpieceDetokenize",
    "FastWordpieceDetokenize",
    "CaseFoldUTF8",
}


def saved_ops(directory: pathlib.Path) -> set[str]:
    saved = saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def
    return {
        node.op for nodes in [graph.node, *(function.node_def for function in graph.library.function)] for node in nodes
    }


@pytest.fixture(params=MAKERS)
def tokenizer(request: pytest.FixtureRequest, bpe: SentencePieceTokenizer) -> Tokenizer:
    return MAKERS[request.param](bpe)


def tokenize_in_graph(tokenizer: Tokenizer) -> tf.types.experimental.GenericFunction:
    return tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])


def test_graph_equals_eager(tokenizer: Tokenizer) -> None:
    text = tf.constant(["K AE T", "", "T"])
    assert tokenizer.tokenize(tf.constant([""])).to_list() == [[]]
    ids = tokenizer.tokenize(text)
    assert ids.dtype == tf.int32
    assert ids.to_list() == tokenize_in_graph(tokenizer)(text).to_list()
    assert ids.to_list()[1] == []
    detokenize = tf.function(tokenizer.detokenize, input_signature=[tf.TensorSpec([None, None], tf.int32)])
    assert detokenize(ids.to_tensor(tokenizer.pad_id)).numpy().tolist() == [b"K AE T", b"", b"T"]


def test_ids_of_many_texts_are_those_of_a_graph(tokenizer: Tokenizer) -> None:
    texts = ["K AE T", "", "T  AE", "low\tlower"]
    ids, counts = tokenizer.ids_of(texts)
    expected = tokenizer.tokenize(tf.constant(texts))
    assert (ids.tolist(), counts.tolist()) == (
        expected.flat_values.numpy().tolist(),
        expected.row_lengths().numpy().tolist(),
    )


def test_functions_can_be_traced_again(tokenizer: Tokenizer) -> None:
    for _ in range(2):
        normalize = tf.function(tokenizer.normalize, input_signature=[tf.TensorSpec([None], tf.string)])
        assert normalize(tf.constant(["K AE"])).numpy().tolist() == [b"K AE"]


def test_empty_batch(tokenizer: Tokenizer) -> None:
    ids = tokenize_in_graph(tokenizer)(tf.zeros([0], tf.string))
    assert ids.shape.as_list() == [0, None]
    assert tokenizer.detokenize(ids).shape == [0]
    assert tokenizer.detokenize(tf.zeros([0, 3], tf.int32)).shape == [0]
    assert tokenizer.detokenize(tf.zeros([2, 0], tf.int32)).numpy().tolist() == [b"", b""]


def test_invalid_utf8_is_replaced(tokenizer: Tokenizer) -> None:
    broken, replaced = tf.constant([b"K \xff\xed\xa0\x80 T"]), tf.constant(["K \ufffd\ufffd\ufffd\ufffd T"])
    assert tokenize_in_graph(tokenizer)(broken).to_list() == tokenizer.tokenize(replaced).to_list()


def test_detokenize_stops_at_the_end_and_drops_pad_and_start(tokenizer: Tokenizer) -> None:
    first, second = (tokenizer.tokenize(tf.constant([symbol])).to_list()[0] for symbol in ("K", "T"))
    pad, start, end = tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id
    rows = [[start, *first, end, *second], [start, *second, pad, pad], [end, *first]]
    for dtype in (tf.int32, tf.int64):
        ragged = tf.ragged.constant(rows, dtype)
        assert tokenizer.detokenize(ragged).numpy().tolist() == [b"K", b"T", b""]
        assert tokenizer.detokenize(ragged.to_tensor(pad)).numpy().tolist() == [b"K", b"T", b""]


def test_no_special_id_comes_out_of_text(tokenizer: Tokenizer) -> None:
    text = tf.constant(["<s> </s> <pad> [PAD] \0 \1 \2", "K AE T"])
    ids = set(tokenizer.tokenize(text).flat_values.numpy().tolist())
    assert not ids & {tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id}
    assert max(ids) < tokenizer.vocab_size


def test_normalize_twice_is_normalize_once(tokenizer: Tokenizer) -> None:
    once = tokenizer.normalize(tf.constant([" K  AE\nT", "T "]))
    assert tokenizer.normalize(once).numpy().tolist() == once.numpy().tolist()


# keras-nlp does not close the vocabulary file of its SentencePieceTokenizer.
@pytest.mark.filterwarnings("ignore:unclosed file .*vocabulary.spm:ResourceWarning")
def test_save_and_load(tokenizer: Tokenizer, tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "made" / "here"
    save_tokenizer(tokenizer, directory)
    save_tokenizer(tokenizer, directory)  # over the older one
    loaded = load_tokenizer(directory)
    text = tf.constant(["K AE T", "the fox ⁇ 30"])
    assert type(loaded) is type(tokenizer)
    assert loaded.vocab_size == tokenizer.vocab_size
    assert loaded.tokenize(text).to_list() == tokenizer.tokenize(text).to_list()
    assert loaded.normalize(text).numpy().tolist() == tokenizer.normalize(text).numpy().tolist()
    assert [entry.name for entry in directory.parent.iterdir()] == ["here"]


def test_saved_model_holds_no_python(tokenizer: Tokenizer, tmp_path: pathlib.Path) -> None:
    module = tf.Module()
    module.tokenizer = tokenizer
    module.normalize = tf.function(tokenizer.normalize, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": module.normalize.get_concrete_function()})
    loaded = tf.saved_model.load(str(tmp_path))
    text = tf.constant(["K AE  T", ""])
    assert loaded.normalize(text).numpy().tolist() == tokenizer.normalize(text).numpy().tolist()

    ops = saved_ops(tmp_path)
    registered_by_core = {name for name in ops if name not in TEXT_OPS}
    assert "UnicodeTranscode" in registered_by_core  # replaces what is not UTF-8, in every tokenizer
    assert not {name for name in ops if "Py" in name}  # PyFunc, EagerPyFunc, ...
    assert all(hasattr(tf.raw_ops, name) for name in registered_by_core), registered_by_core


def test_failed_save_leaves_the_old_tokenizer(symbols: SymbolTokenizer, tmp_path: pathlib.Path) -> None:
    save_tokenizer(symbols, tmp_path / "t")

    class Broken(SymbolTokenizer):
        def write_files(self, directory: pathlib.Path) -> dict[str, object]:
            (directory / "symbols.json").write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        save_tokenizer(Broken(["X"]), tmp_path / "t")
    assert load_tokenizer(tmp_path / "t").symbols == ("K", "AE", "T")
    assert [entry.name for entry in tmp_path.iterdir()] == ["t"]


def test_save_refuses_a_directory_with_other_files(symbols: SymbolTokenizer, tmp_path: pathlib.Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not delete")
    with pytest.raises(
        ValueError, match=r"contains other files than those of tokenizers: thesis.txt. Nothing was written"
    ):
        save_tokenizer(symbols, tmp_path)
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"tokenizer.json": '{"version": "1.0", "model": {}}', "model.safetensors": "weights"}, "model.safetensors, t"),
        ({"tokenizer.json": '{"kind": "symbols"}', "symbols.json": "[]", "notes.txt": "mine"}, "notes.txt."),
        ({"source/main.c": "int main;"}, "source/main.c."),
        ({"source": "a file"}, "source."),
    ],
)
def test_save_takes_no_folder_for_a_tokenizer_that_only_looks_like_one(
    symbols: SymbolTokenizer, tmp_path: pathlib.Path, files: dict[str, str], told: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for save in (
        lambda folder: save_tokenizer(symbols, folder),
        lambda folder: save_tokenizers(folder, symbols, symbols),
    ):
        with pytest.raises(ValueError, match=f"contains other files than those of tokenizers: {told}"):
            save(tmp_path)
    assert {name: (tmp_path / name).read_text() for name in files} == files


def test_load_from_nowhere(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tokenizer.json does not exist. Pass a directory"):
        load_tokenizer(tmp_path)
    with pytest.raises(FileNotFoundError, match="contains neither a folder 'shared' nor folders 'source' and 'target'"):
        load_tokenizers(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is damaged"), ("[]", "is damaged"), ('{"kind": "morse"}', "names the kind 'morse'")]
)
def test_load_damaged_description(text: str, message: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tmp_path)


def test_a_pair_is_saved_and_a_shared_one_stays_shared(
    symbols: SymbolTokenizer, bpe: SentencePieceTokenizer, tmp_path: pathlib.Path
) -> None:
    save_tokenizers(tmp_path / "pair", symbols, bpe)
    source, target = load_tokenizers(tmp_path / "pair")
    assert (type(source), type(target)) == (SymbolTokenizer, SentencePieceTokenizer)
    save_tokenizers(tmp_path / "pair", symbols, symbols)  # takes the place of the two
    source, target = load_tokenizers(tmp_path / "pair")
    assert source is target
    assert sorted(entry.name for entry in (tmp_path / "pair").iterdir()) == ["shared"]


@pytest.mark.parametrize(
    ("found", "message"),
    [(None, "tensorflow-text is not installed"), ("2.20.1", "tensorflow-text is version 2.20.1"), ("2.2.1", "2.2.1")],
)
def test_tensorflow_text_of_another_tensorflow(found: str | None, message: str) -> None:
    with pytest.raises(ImportError, match=message + r'.*pip install "tensorflow-text==2.21.\*"'):
        check_tensorflow_text("2.21.0", found)
    check_tensorflow_text("2.21.0", "2.21.1")


@pytest.mark.parametrize("setting", ["1", "True", "true"])
def test_keras_2_that_is_not_installed(setting: str) -> None:
    with pytest.raises(ImportError, match=f"TF_USE_LEGACY_KERAS={setting} makes.*unset TF_USE_LEGACY_KERAS.*tf_keras"):
        check_keras(setting, None)
    check_keras(setting, "2.21.0")
    check_keras("0", None)
    check_keras("", None)


@pytest.mark.parametrize(
    "text",
    ["K AE T", b"K", tf.constant("K"), [["K"], ["T"]], tf.ragged.constant([["K"], []]), [1, 2], np.array([1.5]), None],
)
def test_what_is_no_batch_of_texts_is_refused(text: Any, tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match=r"a list of strings, or a string tensor of shape \(B,\)\. Received: "):
        tokenizer.tokenize(text)


def test_what_is_no_batch_of_texts_is_refused_in_a_data_set(tokenizer: Tokenizer) -> None:
    texts = tf.data.Dataset.from_tensor_slices(["K AE T", "T"])
    with pytest.raises(ValueError, match="Put a single text into a list"):
        texts.map(tokenizer.tokenize)
    (ids,) = texts.batch(2).map(tokenizer.tokenize)
    assert ids.to_list() == tokenizer.tokenize(["K AE T", "T"]).to_list()


def test_texts_of_any_kind_have_the_same_ids(tokenizer: Tokenizer) -> None:
    expected = tokenizer.tokenize(tf.constant(["K AE T", "T"])).to_list()
    for texts in (["K AE T", b"T"], ("K AE T", "T"), np.array(["K AE T", "T"]), np.array(["K AE T", "T"], object)):
        assert tokenizer.tokenize(texts).to_list() == expected


@pytest.mark.parametrize("ids", [[4, 5], tf.constant([4, 5]), 4, [[4.5]], tf.constant([[4.0]]), [["K"]]])
def test_what_is_no_batch_of_ids_is_refused(ids: Any, tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match=r"rows of integer ids, of shape \(B, T\)\. Received: .*into a list: \[ids\]"):
        tokenizer.detokenize(ids)


def test_ids_of_any_kind_have_the_same_texts() -> None:
    tokenizer = SymbolTokenizer(["K", "AE", "T"])
    padded = [[4, 5], [6, 0]]
    for ids in ([[4, 5], [6]], tf.ragged.constant([[4, 5], [6]]), padded, np.array(padded), tf.constant(padded)):
        assert tokenizer.detokenize(ids).numpy().tolist() == [b"K AE", b"T"]
    assert tokenizer.detokenize([]).shape == (0,)
    assert tokenizer.detokenize([[]]).numpy().tolist() == [b""]


def test_a_pickled_tokenizer_gives_the_same_ids(tokenizer: Tokenizer) -> None:
    if isinstance(tokenizer, KerasNLPTokenizer):
        with pytest.raises(TypeError, match="keras-nlp cannot be pickled. Save it with .*load_tokenizer"):
            pickle.dumps(tokenizer)
        return
    copied = pickle.loads(pickle.dumps(tokenizer))
    assert copied.tokenize(["K AE T <"]).to_list() == tokenizer.tokenize(["K AE T <"]).to_list()
