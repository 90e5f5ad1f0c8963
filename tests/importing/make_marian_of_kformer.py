"""A translator of kformer as a Marian model: `kformer.export_safetensors` writes it, and transformers answers."""

import pathlib
import shutil
import tempfile

import make_example
import make_translator
import transformers
import translator_of_kformer

import kformer
from kformer.tokenizers import SentencePieceTokenizer


def make(folder: pathlib.Path) -> None:
    verses = [text for pair in kformer.data.load_corpus("bible-en-es").train for text in pair][::10]
    tokenizer = SentencePieceTokenizer.train(verses, vocab_size=419, character_coverage=0.999)
    translator = translator_of_kformer.translator(tokenizer)
    with tempfile.TemporaryDirectory() as place:
        exported = kformer.export_safetensors(translator, pathlib.Path(place) / "exported")
        shutil.rmtree(exported / "assets.extra")
        shutil.copytree(exported, folder, dirs_exist_ok=True)
    model, loading = transformers.MarianMTModel.from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values()), loading
    lines = [line for line in make_example.lines() if line == " ".join(line.split())]
    reference = transformers.MarianTokenizer.from_pretrained(folder)
    make_example.note(folder, make_translator.answers(model.eval(), reference, lines[:100]))
