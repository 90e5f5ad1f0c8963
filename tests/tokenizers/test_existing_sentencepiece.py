"""SentencePiece models that users bring, and symbols that stay one token."""

import pytest
import sentencepiece
import toy
from own_models import write_model

import kformer
from kformer.runs.folder import RunFolder
from kformer.tokenizers import (
    PieceVocabularyTokenizer,
    SentencePieceTokenizer,
    load_tokenizers,
    read_sentencepiece,
)
from kformer.training.train import train

pytestmark = pytest.mark.tensorflow_only

TEXTS = ["one two three four", "six five four three", "two one six", "<2es> one five"]
SPECIAL = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}


@pytest.mark.parametrize("options", [{}, SPECIAL, {"pad_id": 3}, {"bos_id": -1, "eos_id": -1}], ids=str)
def test_the_pieces_of_a_model_keep_their_ids(options, tmp_path):
    path = write_model(tmp_path / "en.model", TEXTS, **options)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokenizer = read_sentencepiece(path)
    assert tokenizer.tokenize(TEXTS).to_list() == processor.encode(TEXTS)
    assert [text.decode() for text in tokenizer.detokenize(tokenizer.tokenize(TEXTS)).numpy()] == TEXTS
    special = [tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id]
    own = [processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id()]
    assert len({*special}) == 4
    size = processor.vocab_size()
    for number, known in zip(special, own, strict=True):
        assert number == known if known >= 0 else number >= size
    assert tokenizer.vocab_size == size + sum(number < 0 for number in own)


def test_bytes_and_symbols_of_a_model_come_back(tmp_path):
    options = {"byte_fallback": True, "vocab_size": 300, "user_defined_symbols": ["<2es>", "{0}"]}
    tokenizer = read_sentencepiece(write_model(tmp_path / "en.model", TEXTS, **options))
    assert isinstance(tokenizer, PieceVocabularyTokenizer)
    texts = ["<2es> one {0} two", "ñandú 猫"]
    ids = tokenizer.tokenize(texts)
    assert [text.decode() for text in tokenizer.detokenize(ids).numpy()] == texts
    tokens = [tokenizer.tokens()[number] for number in ids[0].numpy()]
    assert "<2es>" in tokens
    assert "{0}" in tokens


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_user_symbols_are_one_token_wherever_they_stand(kind):
    texts = ["one {0} two <2es> three", "{0}one", "one<2es>{0}"]
    tokenizer = SentencePieceTokenizer.train(
        [*TEXTS, *toy.WORDS.values(), "seven eight nine ten eleven twelve"], 290, kind, user_symbols=["<2es>", "{0}"]
    )
    tokens = [[tokenizer.tokens()[number] for number in row] for row in tokenizer.tokenize(texts).to_list()]
    assert [sum(token in ("<2es>", "{0}") for token in row) for row in tokens] == [2, 1, 2]
    assert [text.decode() for text in tokenizer.normalize(texts).numpy()] == texts
    others = SentencePieceTokenizer.train(
        [*TEXTS, *toy.WORDS.values(), "seven eight nine ten eleven twelve"], 290, kind
    )
    assert not {"<2es>", "{0}"} & {*others.tokens()}


@pytest.mark.parametrize("symbol", ["", "a b", "e\u0301", "a\u2581", "<s>", "<0x41>", "\u200b"])
def test_a_symbol_that_would_not_come_back_is_refused(symbol):
    with pytest.raises(ValueError, match="A user symbol must be a text in the form NFC without blanks"):
        SentencePieceTokenizer.train(TEXTS, 290, user_symbols=[symbol])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source_tokenizer": "gone.model"}, "There is no file gone.model. Give a SentencePiece model"),
        ({"target_tokenizer": "pairs.tsv"}, "pairs.tsv is no SentencePiece model. Give the file NAME.model"),
        ({"user_symbols": "<s>"}, "no special piece such as <s> or <0x41>. Received: '<s>'"),
        ({"user_symbols": "a", "tokenizer": "words"}, "user_symbols are for subwords: the tokenizers bpe and unigram"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_written(changes, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("one\tuno\n")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, toy.TRAINING.replace(**changes))
    assert not RunFolder(tmp_path / "run").exists()


def test_a_run_has_a_tokenizer_of_its_own_or_that_of_its_first_weights(tmp_path):
    model = str(write_model(tmp_path / "en.model", TEXTS))
    with pytest.raises(ValueError, match="has the tokenizers of that run. Received: source_tokenizer as well"):
        train(
            toy.corpus(), tmp_path / "run", training=toy.TRAINING.replace(source_tokenizer=model),
            initialize_from="bible-en-es",
        )  # fmt: skip
    labels = kformer.TransformerConfig.of_size("tiny", task="classify")
    training = toy.TRAINING.replace(target_tokenizer=model)
    with pytest.raises(ValueError, match="target_tokenizer is for translators. Received: the task classify"):
        train(_labelled(), tmp_path / "run", labels, training)


def _labelled():
    corpus = toy.corpus()
    parts = {name: [(text, "a") for text, _ in getattr(corpus, name)] for name in ("train", "valid", "test")}
    return kformer.data.Corpus(name="labels", **parts)


def test_a_run_trains_with_a_model_and_goes_on_without_its_file(tmp_path, untraced):
    corpus = toy.corpus()
    path = write_model(tmp_path / "numbers.model", [text for pair in corpus.train for text in pair])
    content = path.read_bytes()
    training = toy.TRAINING.replace(source_tokenizer=str(path), max_steps=2, validation_steps=2, tokens_per_batch=128)
    report = train(corpus, tmp_path / "run", toy.TRANSFORMER, training)
    config = report.run.transformer_config()
    assert (config.source_vocab_size, config.embedding_tying) == (config.target_vocab_size, "all")
    source, target = load_tokenizers(report.run.tokenizer_folder)
    assert source is target
    assert source.model_bytes == content
    path.unlink()
    assert train(corpus, tmp_path / "run", training=training.replace(max_steps=3), resume=True).steps == 3
    assert isinstance(kformer.Translator.from_run(tmp_path / "run")("one two"), str)
