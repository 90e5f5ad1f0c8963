"""The model card of an export."""

import json

import pytest

from kformer.config import DecodingConfig
from kformer.export.model_card import CARD_FILE, READABLE_CARD_FILE, model_card, write_card
from kformer.tasks.translator import Translator

pytestmark = pytest.mark.tensorflow_only


def test_the_card_of_a_preset_says_what_is_known_of_it(tmp_path):
    translator = Translator.from_preset("cmudict", DecodingConfig(beam_size=3))
    write_card(_folder(tmp_path), translator, {"precision": "int8", "oldest_server": "2.17"})
    card = json.loads((tmp_path / CARD_FILE).read_text())
    assert card["licence"]
    assert card["corpus"]["name"] == "cmudict"
    assert len(card["corpus"]["sha256"]) == 64
    assert 0 < card["scores"]["word_error_rate"] < 1
    assert card["model"]["d_model"] == translator.config.d_model
    assert card["search"]["beam_size"] == 3
    assert card["export"] == {"precision": "int8", "oldest_server": "2.17"}
    assert {"kformer", "tensorflow"} <= {*card["trained_with"]} & {*card["exported_with"]}
    page = (tmp_path / READABLE_CARD_FILE).read_text()
    assert page.startswith(f"# {card['description']}\n")
    assert f"| word_error_rate | {card['scores']['word_error_rate']} |" in page
    assert f"{card['parameters']:,} parameters" in page


def test_the_card_of_an_unknown_model_says_so(tmp_path, numbers_translator):
    tokenizers = (numbers_translator.source_tokenizer, numbers_translator.target_tokenizer)
    bare = Translator(numbers_translator.model, numbers_translator.config, *tokenizers)
    card = model_card(bare, {"precision": "float32"})
    assert (card["scores"], card["corpus"], card["licence"]) == (None, None, None)
    write_card(_folder(tmp_path), bare, {"precision": "float32"})
    page = (tmp_path / READABLE_CARD_FILE).read_text()
    assert "Licence: not known." in page
    assert "## Scores\n\nNot known.\n" in page


def test_the_page_of_a_card_is_a_table_whatever_the_facts_hold(tmp_path, numbers_translator):
    tokenizers = (numbers_translator.source_tokenizer, numbers_translator.target_tokenizer)
    facts = {"provenance": "Made of a book.", "corpus": {"name": "a|b\nc", "pairs": 3}}
    known = Translator(numbers_translator.model, numbers_translator.config, *tokenizers, facts=facts)
    write_card(_folder(tmp_path), known, {"precision": "float32"})
    page = (tmp_path / READABLE_CARD_FILE).read_text()
    assert page.startswith("# A Transformer for the task translate\n\nLicence: not known. ")
    assert " parameters.\n\nMade of a book.\n\n## Scores\n" in page
    assert "## Corpus\n\n| | |\n| --- | --- |\n| name | a\\|b c |\n| pairs | 3 |\n\n## Model\n" in page


def test_an_export_has_the_card_of_its_run(numbers_translator, numbers_export):
    card = json.loads((numbers_export / "1" / CARD_FILE).read_text())
    assert card["corpus"] == numbers_translator.facts["corpus"]
    assert card["export"]["signatures"] == ["serving_default", *Translator.signatures]


def _folder(path):
    (path / CARD_FILE).parent.mkdir()
    return path
