"""The small models of other toolkits in `tests/importing/examples`, and what they answered there."""

import functools
import json
import pathlib
import sys

import numpy as np
import tensorflow as tf

from kformer.cli.main import main
from kformer.importing.run import import_model
from kformer.models.building import build_model
from kformer.runs.weights import load_weights
from kformer.tasks import LanguageModel
from kformer.tokenizers import load_tokenizers

FOLDER = pathlib.Path(__file__).parent / "examples"
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
TOLERANCE = 1e-4  # of logits and scores


def run_command(monkeypatch, *arguments):
    """Runs `kformer import`; its status."""
    monkeypatch.setenv(ONEDNN, "0")  # as the command does, but taken back when the test ends
    monkeypatch.delenv(ONEDNN)
    monkeypatch.setattr(sys, "argv", ["kformer", "import", *map(str, arguments)])
    try:
        main()
    except SystemExit as ended:
        return ended.code
    return 0


def error_of_command(monkeypatch, capsys, *arguments):
    """The one line that `kformer import` says when it refuses something, with the status 1."""
    capsys.readouterr()
    assert run_command(monkeypatch, *arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line


class Example:
    """An example that was imported.

    Args:
        name: Of the folder.
        place: Where the run folder is made.
        languages: From and to which it translates.
    """

    def __init__(self, name, place, languages=None):
        self.folder = FOLDER / name
        self.expected = json.loads((self.folder / "expected.json").read_text(encoding="utf-8"))
        self.run = import_model(self.folder, place / name, languages=languages)

    @functools.cached_property
    def model(self):
        model = build_model(self.run.transformer_config())
        load_weights(self.run, model)
        return model

    def ids(self):
        """The ids of the lines, as the model reads them."""
        source, _ = load_tokenizers(self.run.tokenizer_folder)
        end = self.run.transformer_config().end_id
        return [[*ids, end] for ids in source.tokenize(self.expected["lines"]).to_list()]

    def translation_logits(self):
        """The logits that `expected.json` has, of a translator."""
        target_in = np.array(self.expected["target_in"], "int32")
        ids = tf.ragged.constant(self.expected["ids"][: len(target_in)])
        source = ids.to_tensor(self.run.transformer_config().pad_id).numpy().astype("int32")
        return np.asarray(self.model({"source": source, "target_in": target_in}))

    def answers(self, predictor_class, **changes):
        """Texts and scores of a search with some fields changed."""
        predictor = predictor_class.from_run(self.run.path, self.run.decoding_config().replace(**changes))
        found = predictor.answer(tf.constant(self.expected["lines"]))
        return [text.decode() for text in found["translation"].numpy()], found["score"].numpy()

    def language_model(self, **changes):
        """The language model, with some fields of its search changed."""
        return LanguageModel.from_run(self.run.path, self.run.decoding_config().replace(**changes))
