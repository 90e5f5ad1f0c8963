"""A translator, or another predictor, as a SavedModel for TensorFlow Serving and all that loads SavedModels."""

import contextlib
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kformer.config import answer_outputs
from kformer.export.card import write_card
from kformer.export.check import check_agreement, check_operations, check_without_python
from kformer.export.graph import functions_of_this_machine, served_functions
from kformer.export.loops import run_loops_as_functions
from kformer.export.server_files import BATCH_SIZES, write_server_files
from kformer.export.servers import check_operations_of_server, check_server, oldest_server, processor
from kformer.export.signatures import Function
from kformer.export.variables import Weights
from kformer.export.warmup import try_requests, write_warmup
from kformer.files.checksums import note_checksums
from kformer.files.writing import WriteError, staging_folder, sync_tree
from kformer.runtime.paths import check_export_path, readable_path
from kformer.runtime.versions import (
    DEFAULT_SIGNATURE,
    DESCRIPTION_FILE,
    check_kind,
    check_signatures,
    check_version,
    next_version,
)
from kformer.tasks.predictor import Predictor
from kformer.tokenizers import SymbolTokenizer, Tokenizer
from kformer.tokenizers.base import NUM_SPECIAL_IDS


def export_saved_model(
    predictor: Predictor,
    directory: str | pathlib.Path,
    version: int | None = None,
    precision: str = "float32",
    variant: str = "portable",
    samples: Sequence[str] = (),
    server_version: str | None = None,
    signatures: Sequence[str] = (),
) -> pathlib.Path:
    """Writes `directory/<version>/`, a SavedModel for TensorFlow Serving, and tries it out.

    The signature `serving_default` takes `text` (B,) and gives what the predictor answers: `translation` and `score` of
    a translator; `label`, `probability` and `probabilities` of a classifier; `tags` and `score` of a tagger; `text` and
    `score` of a language model. All have B rows, so that TensorFlow Serving may batch requests. The folder
    appears whole or not at all: it is written under a name that TensorFlow Serving does not look at, checked, and
    renamed.

    The export has variables of its own for the weights, because TensorFlow's C API would not restore Keras's
    variables; only a Python loader would.

    Before the folder gets its name, `predictor` and the export answer the same texts. The export does so in Python,
    and through TensorFlow's C API in a separate process, there in a batch and one by one. `versions.DESCRIPTION_FILE`
    in the folder says how the export was made and how much the results differ; `card.CARD_FILE` adds what is known of
    the model, its corpus and its scores. `warmup.WARMUP_FILE` has requests that a server runs before it answers with
    this version; each was tried. `batching.config`, `models.config` and `monitoring.config` for the server's start are
    beside the versions; they are written once, and may be edited.

    Args:
        predictor: What to export: a `Translator`, `Classifier`, `Tagger` or `LanguageModel`.
        directory: The model's base folder; made if missing.
        version: Number of the new version; by default one more than the last one in `directory`. Exports into
            one folder at the same time get different numbers.
        precision: The number format of the matrix products. "float32"; "bfloat16", half the size, faster on CPUs with
            AVX512-BF16 or AMX, but slow on others; "int8", a quarter of the size, on x86 only.
        variant: "portable" has core operations only and runs everywhere. "xla" compiles the search for each shape of
            its inputs, in float32 only; TensorFlow Serving needs `--xla_cpu_compilation_enabled` for it.
        samples: Texts to try the export on; int8 takes the ranges of inputs from them. By default `predictor.samples`,
            which for a run folder are validation sources. If there are none, texts of random pieces are used, which say
            little about how a trained model behaves.
        server_version: The version of TensorFlow Serving that must run the export, such as "2.17"; None: any version.
            `assets.extra/kformer.json` names the oldest one that has all operations, and the processor that they need.
        signatures: More signatures: "n_best" (all hypotheses of the beam), "score" (how probable given translations
            are), "translate_detailed" (tokens, their places, probabilities and alignment) or "translate_with_options"
            (each request gives its length penalty, largest length, sampling and the beginning of the translation). A
            language model can have "generate_with_options".

    Returns:
        The path of the new version.

    Raises:
        FileExistsError: The version exists already.
        OSError: `directory` cannot be a folder or cannot be written to, or the disk is full, for example.
        ValueError: `version` is negative, TensorFlow cannot load a model from a folder of this name, `precision` or
            `variant` is unknown, the graph holds an operation that cannot be served or that `server_version` lacks, or
            the export's scores differ too much from the predictor's.

    Examples:
        >>> path = export_saved_model(translator, "exported/cmudict", signatures=["n_best"])  # doctest: +SKIP
        >>> path.name  # doctest: +SKIP
        '1'
    """
    directory = pathlib.Path(directory)
    check_kind(precision, variant)
    check_signatures(signatures, variant, predictor.signatures)
    server = None if server_version is None else check_server(server_version, precision)
    check_export_path(directory)
    if version is not None:
        check_version(directory, version)
    texts = samples or predictor.samples or random_texts(predictor.source_tokenizer)
    with staging_folder(directory, "export") as fresh:
        weights = Weights()
        names = (DEFAULT_SIGNATURE, *dict.fromkeys(signatures))
        functions = served_functions(predictor, weights, precision, variant, texts, names)
        with _write_errors_explained(directory):
            _save(predictor, weights, functions, fresh)
            if precision == "int8":
                run_loops_as_functions(fresh)
        used = check_operations(fresh)
        if server is not None:
            check_operations_of_server(used, server)
        answers = dict(tf.saved_model.load(str(fresh)).signatures)
        agreement = check_agreement(answers[DEFAULT_SIGNATURE], predictor, texts, precision)
        requests, batch_seconds = try_requests(answers, texts, BATCH_SIZES[variant])
        agreement |= check_without_python(fresh, answers[DEFAULT_SIGNATURE], predictor, texts, precision)
        with _write_errors_explained(directory):
            facts = {
                "precision": precision,
                "variant": variant,
                "signatures": list(functions),
                "oldest_server": oldest_server(used),
                "processor": processor(used),
                **agreement,
            }
            write_warmup(fresh, requests)
            _describe(fresh, predictor, facts)
            write_card(fresh, predictor, facts)
            files = [file for file in fresh.rglob("*") if file.is_file()]
            note_checksums((fresh / DESCRIPTION_FILE).parent, files)
            sync_tree(fresh)
            write_server_files(directory, variant, batch_seconds)
        return _named(fresh, directory, version)


@contextlib.contextmanager
def _write_errors_explained(directory: pathlib.Path) -> Iterator[None]:
    """Turns an error in writing a file, also one of TensorFlow, into an OSError with a plain message."""
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        said = error.message if isinstance(error, tf.errors.OpError) else error.strerror or str(error)
        # TensorFlow puts the path of its own temporary file before the reason, and the operation behind it.
        reason = said.strip().splitlines()[0].split("; ")[-1].split(" [Op:")[0].rstrip(".")
        raise WriteError(
            f"The export could not be written to {directory}: {reason}. No incomplete export remains there. Make room "
            "on that disk, or name a folder on another one."
        ) from error


class _Served(tf.Module):
    """What is saved: the functions, their weights, and the tokenizers' resources."""

    def __init__(self, predictor: Predictor, weights: Weights, functions: dict[str, Function]) -> None:
        super().__init__(name="kformer")
        self.source_tokenizer = predictor.source_tokenizer
        self.target_tokenizer = predictor.target_tokenizer
        self.weights = weights
        self.functions = functions


def save_for_this_machine(predictor: Predictor, folder: pathlib.Path, n_best: int) -> None:
    """Writes a SavedModel for this machine: portable, in float32, and not tried out.

    Args:
        predictor: What to save.
        folder: An empty folder.
        n_best: N: a translator's `serving_default` gives `translation` and `score` of shape (B, N), best first.
    """
    weights = Weights()
    functions = functions_of_this_machine(predictor, weights, n_best)
    _save(predictor, weights, functions, folder)
    _describe(folder, predictor, {})
    note_checksums(folder, [file for file in folder.rglob("*") if file.is_file()])


def _save(predictor: Predictor, weights: Weights, functions: dict[str, Any], folder: pathlib.Path) -> None:
    """Writes the SavedModel, without TensorFlow's message that names the folder: the folder is renamed later."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel("WARNING")
    try:
        with readable_path(folder) as path:
            tf.saved_model.save(_Served(predictor, weights, functions), path, signatures=functions)
    finally:
        logger.setLevel(level)


def random_texts(tokenizer: Tokenizer, number: int = 16) -> list[str]:
    """`number` texts of 1 to `number` random pieces; every call gives the same texts."""
    pieces = np.random.default_rng(0).integers(NUM_SPECIAL_IDS, tokenizer.vocab_size, (number, number))
    ids = tf.RaggedTensor.from_tensor(pieces.astype("int32"), lengths=range(1, number + 1))
    return [text.decode("utf-8", "replace") for text in tokenizer.detokenize(ids).numpy()]


def _describe(saved_model: pathlib.Path, predictor: Predictor, facts: dict[str, Any]) -> None:
    symbols = predictor.source_tokenizer.kind == SymbolTokenizer.kind
    answers = {"task": predictor.task, "outputs": answer_outputs(predictor.task), "labels": predictor.labels}
    path = saved_model / DESCRIPTION_FILE
    path.parent.mkdir(exist_ok=True)
    description = {**facts, **predictor.decoding.to_dict(), "symbols": symbols, **answers}
    path.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def _named(fresh: pathlib.Path, directory: pathlib.Path, version: int | None) -> pathlib.Path:
    """Gives a finished export its name: the version asked for, or the next one that no other export has taken."""
    while True:
        target = directory / str(next_version(directory) if version is None else version)
        try:
            # This fails if the version exists, since a folder that is not empty cannot be replaced.
            return fresh.rename(target)
        except OSError:
            if version is not None:
                check_version(directory, version)
            if version is not None or not target.exists():
                raise
