"""From and to which languages a model of many languages translates."""

import json
import shutil

import pytest
from importing.examples import FOLDER, error_of_command

from kformer.importing.languages import Languages
from kformer.importing.run import import_model
from kformer.tokenizers import load_tokenizers

pytestmark = pytest.mark.tensorflow_only


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / "m2m100", tmp_path / "folder")


def first_ids(run):
    source, target = load_tokenizers(run.tokenizer_folder)
    return (
        source.tokenize(["a"]).to_list()[0][0],
        target.tokenize(["a"]).to_list()[0][0],
        run.decoding_config().first_id,
    )


def test_the_files_say_the_languages_and_an_argument_says_others(folder, tmp_path):
    pieces = len(json.loads((folder / "vocab.json").read_text()))
    codes = json.loads((folder / "special_tokens_map.json").read_text())["additional_special_tokens"]
    ids = {code: pieces + codes.index(f"__{code}__") for code in ("en", "es", "fr")}
    assert first_ids(import_model(folder, tmp_path / "one")) == (ids["en"], ids["es"], ids["es"])
    run = import_model(folder, tmp_path / "other", languages=Languages(target="fr"))
    assert first_ids(run) == (ids["en"], ids["fr"], ids["fr"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("added_tokens.json", {"__xx__": 19, "other": 3}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"19": {"content": "__xx__", "special": True}}}),
        ("tokenizer.json", {"added_tokens": [{"id": 3, "content": "<s>"}, {"id": 19, "content": "__xx__"}]}),
    ],
)
def test_a_language_that_was_added_later_has_the_id_that_a_file_gives_it(folder, tmp_path, name, content):
    """Tools that add a token list it behind the others, or between them, whatever its id is."""
    english = first_ids(import_model(folder, tmp_path / "before"))[0]
    listed = folder / "special_tokens_map.json"
    codes = json.loads(listed.read_text())["additional_special_tokens"]
    listed.write_text(json.dumps({"additional_special_tokens": ["__xx__", *codes]}))
    known = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
    (folder / name).write_text(json.dumps(known | content))
    run = import_model(folder, tmp_path / "run", languages=Languages("en", "xx"))
    assert first_ids(run) == (english, 19, 19)
    token = {"content": "__xx__", "id": "x"}
    for broken in (
        {"added_tokens_decoder": [1], "added_tokens": [1], "__xx__": None},
        {"added_tokens_decoder": {"x": token}, "added_tokens": [token], "__xx__": "x"},
    ):
        (folder / name).write_text(json.dumps(known | broken))
        with pytest.raises(ValueError, match=f"{name} does not tell the ids of its added tokens"):
            import_model(folder, tmp_path / "other", languages=Languages("en", "xx"))


def test_special_tokens_of_another_form_are_no_languages(folder, tmp_path):
    expected = first_ids(import_model(folder, tmp_path / "before"))
    path = folder / "special_tokens_map.json"
    content = json.loads(path.read_text())
    content["additional_special_tokens"][:0] = ["<sep>", "__es__2"]
    path.write_text(json.dumps(content))
    assert first_ids(import_model(folder, tmp_path / "after")) == expected


def test_a_language_that_the_model_does_not_know_is_refused_with_the_known_ones(folder, tmp_path):
    with pytest.raises(
        ValueError, match=r"does not know 'zhh', .* the target's language\. Did you mean 'zh'\?.*: af, am"
    ):
        import_model(folder, tmp_path / "run", languages=Languages(target="zhh"))
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match="files do not say the source's language. Choose one by --source-language"):
        import_model(folder, tmp_path / "run", languages=Languages(target="fr"))
    (folder / "special_tokens_map.json").unlink()
    with pytest.raises(ValueError, match="lists no languages"):
        import_model(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_of_two_languages_has_no_choice(tmp_path, monkeypatch, capsys):
    arguments = (FOLDER / "marian", tmp_path / "run", "--target-language", "fr")
    told = error_of_command(monkeypatch, capsys, *arguments)
    assert "format marian translates between the languages that it was trained for" in told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [("nllb", "legacy_behaviour", True), ("mbart", "tokenizer_class", "MBartTokenizer")],
)
def test_a_language_behind_the_end_is_refused(tmp_path, name, option, value):
    folder = shutil.copytree(FOLDER / name, tmp_path / "folder")
    (folder / "tokenizer_config.json").write_text(json.dumps({option: value}))
    with pytest.raises(ValueError, match="legacy_behaviour|behind the end of a source"):
        import_model(folder, tmp_path / "run", languages=Languages("eng_Latn", "spa_Latn"))


def test_pieces_of_another_model_are_refused(folder, tmp_path):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "vocab_size": 100}))
    with pytest.raises(ValueError, match="files are of different models"):
        import_model(folder, tmp_path / "run")
