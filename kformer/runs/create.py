"""Run folders are made here: from the parts of a model, or from another run folder."""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.files.writing import new_folder
from kformer.runs.folder import RunFolder
from kformer.runs.weights import save_weights
from kformer.tokenizers import Tokenizer, save_tokenizers

ORIGIN = ("name", "licence", "format", "files")  # what is noted of a model that was trained elsewhere


def create_run(
    run: RunFolder,
    transformer: TransformerConfig,
    tokenizers: tuple[Tokenizer, Tokenizer],
    decoding: DecodingConfig,
    corpus: Mapping[str, Any],
    *,
    training: TrainingConfig | None = None,
    samples: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    origin: Mapping[str, Any] | None = None,
    model: keras.Model | None = None,
) -> None:
    """Writes a run folder of a model, which may have been trained here or elsewhere, or may begin its training.

    The folder may exist, and files of others may be in it. `transformer.json` is written last, because a folder with
    this file counts as a run: if the process is killed before, the folder can be written again.

    Args:
        run: The folder.
        transformer: The sizes of the model.
        tokenizers: Of source and target; the same object twice if they share a vocabulary.
        decoding: The search of the model.
        corpus: What is known of the text that the model learns from, as plain values: at least `name`, and `symbols`,
            which says whether the targets are symbols and not sentences.
        training: How the model is trained. None: it was not trained here, and the training cannot be resumed.
        samples: Some source texts on which an export is tried.
        environment: What the model is trained with, see `describe_environment`; None: nobody knows.
        origin: Where the model comes from, if it was trained elsewhere: `name`, `licence`, `format` and `files`.
        model: Gives the best weights. None: there are no weights yet.

    Raises:
        FileExistsError: The folder holds a run already.
        ValueError: `origin` has other names.

    Examples:
        >>> from kformer.tokenizers import SymbolTokenizer
        >>> letters = SymbolTokenizer(["c", "a", "t"])
        >>> transformer = kformer.TransformerConfig(source_vocab_size=letters.vocab_size)
        >>> run, corpus = RunFolder("letters"), {"name": "cats", "symbols": True}
        >>> create_run(run, transformer, (letters, letters), kformer.DecodingConfig(), corpus)
        >>> run.transformer_config() == transformer
        True
    """
    run.check_new()
    if origin is not None and {*origin} != {*ORIGIN}:
        raise ValueError(
            f"origin must have {', '.join(ORIGIN)}. Received: {', '.join(origin) or 'nothing'}. Give all of these, and "
            "no others; None where something is not known."
        )
    run.path.mkdir(parents=True, exist_ok=True)
    save_tokenizers(run.tokenizer_folder, *tokenizers)
    decoding.save(run.decoding_file)
    run.write_corpus(dict(corpus))
    run.write_samples(samples)
    for file in (run.training_file, run.environment_file, run.origin_file, run.best_weights_file):
        file.unlink(missing_ok=True)  # of a run that was killed at its start
    if training is not None:
        training.save(run.training_file)
    if environment is not None:
        run.write_environment(dict(environment))
    if origin is not None:
        run.write_origin(dict(origin))
    if model is not None:
        save_weights(run.best_weights_file, model)
    run.note_files()
    run.write_config(run.transformer_file, transformer)


@contextlib.contextmanager
def derived_run(source: RunFolder, output: str | pathlib.Path) -> Iterator[RunFolder]:
    """Makes a run folder with the descriptions and tokenizers of `source`; the block adds the weights.

    The block gets a folder beside `output`, which is renamed to `output` if the block succeeds: it appears whole or not
    at all.

    Raises:
        FileExistsError: `output` exists.
    """
    with new_folder(output) as folder:
        fresh = RunFolder(folder)
        descriptions = (source.transformer_file, source.training_file, source.corpus_file, source.environment_file)
        for file in (*descriptions, source.decoding_file, source.origin_file):
            if file.is_file():
                shutil.copy(file, fresh.path)
        shutil.copytree(source.tokenizer_folder, fresh.tokenizer_folder)
        yield fresh
        fresh.note_files()
