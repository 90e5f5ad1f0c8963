"""What users do with folders of Hugging Face before they import them: more tokens, other padding, copies that fail."""

import json
import shutil

import pytest
from importing.examples import FOLDER

from kformer.importing.formats import choose_format
from kformer.importing.languages import Languages
from kformer.importing.run import describe_origin, read_folder
from kformer.tokenizers.sentencepiece import read_model

pytestmark = pytest.mark.tensorflow_only
LANGUAGES = {"m2m100": Languages("en", "fr"), "mbart": Languages("en_XX", "fr_XX")}


@pytest.fixture
def copied(tmp_path):
    return lambda name: shutil.copytree(FOLDER / name, tmp_path / name)


def read(folder):
    """What is read of a folder; its weights are not."""
    return read_folder(folder, choose_format(folder, None), LANGUAGES.get(folder.name))


def change(path, **fields):
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | fields))


def add(folder, file, token, special):
    """Adds a token in one of the files that may tell of it, with an id of the vocabulary that no piece has."""
    number = json.loads((folder / "config.json").read_text())["vocab_size"] - 1
    if file == "added_tokens.json":
        change(folder / file, **{token: number})
    else:
        decoder = {str(number): {"content": token, "special": special}}
        change(folder / file, added_tokens_decoder=decoder)


@pytest.mark.parametrize("name", ["marian", "m2m100", "mbart", "t5", "bart", "gpt2", "llama"])
@pytest.mark.parametrize("file", ["added_tokens.json", "tokenizer_config.json"])
def test_tokens_that_were_added_for_texts_are_refused(copied, name, file):
    folder = copied(name)
    add(folder, file, "kformer", special=False)
    with pytest.raises(ValueError, match=r"adds tokens to its trained vocabulary, .* to have: 'kformer'\."):
        read(folder)


@pytest.mark.parametrize("name", ["marian", "m2m100", "mbart", "t5", "bart", "gpt2", "llama"])
def test_special_tokens_may_have_been_added(copied, name):
    folder = copied(name)
    before = read(folder).tokenizers[0]
    add(folder, "tokenizer_config.json", "<|new|>", special=True)
    found = read(folder).tokenizers[0]
    assert found.tokenize(["kformer <|new|>"]).to_list() == before.tokenize(["kformer <|new|>"]).to_list()


def test_a_token_of_which_another_file_says_that_it_is_special_is_special(copied):
    folder = copied("t5")
    add(folder, "added_tokens.json", "<|new|>", special=None)
    change(folder / "special_tokens_map.json", sep_token={"content": "<|new|>"})
    assert read(folder)


@pytest.mark.parametrize("padding", ["a piece", -1])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_piece_of_texts_is_no_padding(copied, name, padding):
    """Some files name the first piece, which is "!" in GPT-2."""
    folder = copied(name)
    tokenizer = read(folder).tokenizers[0]
    (ids,) = tokenizer.tokenize(["the land"]).to_list()
    change(folder / "config.json", pad_token_id=ids[0] if padding == "a piece" else padding)
    found = read(folder).tokenizers[0]
    assert found.tokenize(["the land"]).to_list() == [ids]
    assert found.detokenize(found.tokenize(["the land"])).numpy().tolist() == [b"the land"]
    assert found.pad_id not in ids


@pytest.mark.parametrize(
    ("kind", "fields", "window"),
    [
        ("llama", {"sliding_window": 2}, None),
        ("mistral", {}, 4096),
        ("mistral", {"sliding_window": None}, None),
        ("mistral", {"sliding_window": 2}, 2),
    ],
)
def test_a_window_is_that_of_the_model_type(copied, kind, fields, window):
    folder = copied("llama")
    content = json.loads((folder / "config.json").read_text())
    content.pop("sliding_window", None)
    (folder / "config.json").write_text(json.dumps(content | {"model_type": kind} | fields))
    assert read(folder).transformer.attention_window == window


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlicense: mit\n---\ntext", "mit"),
        ("---\nlicense:\nlanguage: en\n---\n", None),
        ("---\nlicense:\n- apache-2.0\n- mit\n---\n", "apache-2.0, mit"),
        ("---\nlanguage: en\n---\nlicense: mine\n", None),
        ("license: mit\n", None),
        ("---\n{\n---\n", None),
    ],
)
def test_the_licence_is_that_of_the_heading(tmp_path, card, licence):
    (tmp_path / "README.md").write_text(card)
    assert describe_origin(tmp_path, "marian")["licence"] == licence


@pytest.mark.parametrize("file", ["source.spm", "model.safetensors"])
def test_a_pointer_of_git_lfs_is_called_so(copied, file):
    folder = copied("marian")
    (folder / file).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(ValueError, match=f"{file} is a pointer of Git LFS, and not the file. Run `git lfs pull`"):
        read(folder)


def test_merges_may_have_a_byte_order_mark_and_the_same_line_twice(copied):
    folder = copied("gpt2")
    before = read(folder).tokenizers[0]
    lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    text = "\r\n".join([*lines, lines[-1]]) + "\r\n"
    (folder / "merges.txt").write_bytes(text.encode("utf-8-sig"))
    text = (folder / "vocab.json").read_text(encoding="utf-8")
    (folder / "vocab.json").write_text(text, encoding="utf-8-sig")
    found = read(folder).tokenizers[0]
    texts = ["in the land of the living", "año"]
    assert found.tokenize(texts).to_list() == before.tokenize(texts).to_list()


@pytest.mark.parametrize(("name", "file"), [("gpt2", "merges.txt"), ("bert", "vocab.txt")])
def test_a_vocabulary_that_is_not_utf_8_is_named(copied, name, file):
    folder = copied(name)
    (folder / file).write_bytes((folder / file).read_bytes() + b"\xff\n")
    with pytest.raises(ValueError, match=f"{file} is not UTF-8"):
        read(folder)


@pytest.mark.parametrize("name", ["marian", "m2m100", "mbart", "t5"])
def test_blanks_that_transformers_would_remove_are_told(copied, name):
    folder = copied(name)
    change(folder / "tokenizer_config.json", clean_up_tokenization_spaces=True)
    with pytest.warns(UserWarning, match="transformers removes blanks before marks such as ! and ?"):
        read(folder)


def test_the_examples_have_the_pieces_that_these_tests_speak_of():
    processor = read_model((FOLDER / "llama" / "tokenizer.model").read_bytes())
    assert "▁the" in [processor.id_to_piece(number) for number in range(processor.vocab_size())]
