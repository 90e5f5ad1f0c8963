"""A translator, or another predictor, as a SavedModel for TensorFlow Serving and all that loads SavedModels."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from kformer.export.check import check_agreement, check_operations, check_without_python
from kformer.export.graph import functions_of_this_machine, served_functions
from kformer.export.kinds import check_kind, check_signatures
from kformer.export.loops import run_loops_as_functions
from kformer.export.server_files import BATCH_SIZES, write_server_files
from kformer.export.server_versions import check_operations_of_server, check_server, oldest_server, processor
from kformer.export.signatures import Function
from kformer.export.target import (
    ExportTarget,
    Trial,
    describe,
    export,
    write_errors_explained,
    write_errors_of_tensorflow,
)
from kformer.export.variables import Weights
from kformer.export.warmup import try_requests, write_warmup
from kformer.files.checksums import note_checksums
from kformer.runtime.paths import readable_path
from kformer.runtime.signature_names import DEFAULT_SIGNATURE
from kformer.tasks.predictor import Predictor


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
    and through TensorFlow's C API in a separate process, there in a batch and one by one.

    The version holds `saved_model.pb`, the graph with tokenizers, model and search; `variables/`, the weights; and
    `assets.extra/`. There `kformer.json` says how the export was made and how much the results differ, `SHA256SUMS` has
    the checksums of its files, and `MODEL_CARD.md` and `model_card.json` say what is known of the model, its corpus and
    its scores. `tf_serving_warmup_requests` has requests that a server runs before it answers with this version; each
    was tried. `batching.config`, `models.config` and `monitoring.config` for the server's start are beside the
    versions; they are written once, and may be edited.

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
    target = SavedModelTarget(precision, variant, server_version, tuple(dict.fromkeys(signatures)))
    return export(predictor, directory, target, version, samples)


@dataclasses.dataclass(frozen=True)
class SavedModelTarget(ExportTarget):
    """A SavedModel for TensorFlow Serving; the fields are those of `export_saved_model`.

    Examples:
        >>> SavedModelTarget(precision="int8").name
        'saved_model'
    """

    name = "saved_model"
    precision: str = "float32"
    variant: str = "portable"
    server_version: str | None = None
    signatures: tuple[str, ...] = ()

    def check_options(self, predictor: Predictor) -> None:
        """See `ExportTarget.check_options`."""
        check_kind(self.precision, self.variant)
        check_signatures(self.signatures, self.variant, predictor.signatures)
        if self.server_version is not None:
            check_server(self.server_version, self.precision)

    def write(self, predictor: Predictor, folder: pathlib.Path, texts: Sequence[str], base: pathlib.Path) -> None:
        """See `ExportTarget.write`."""
        weights = Weights()
        names = self._all_signatures(predictor)
        functions = served_functions(predictor, weights, self.precision, self.variant, texts, names)
        with write_errors_explained(base):
            _save(predictor, weights, functions, folder)
            if self.precision == "int8":
                run_loops_as_functions(folder)

    def _all_signatures(self, predictor: Predictor) -> tuple[str, ...]:
        """A model with tags has those by which a client learns them and chooses one, too."""
        of_tags = (
            ("known_tags", "translate_with_options") if predictor.decoding.tags and self.variant == "portable" else ()
        )
        return tuple(dict.fromkeys((DEFAULT_SIGNATURE, *self.signatures, *of_tags)))

    def check(self, predictor: Predictor, folder: pathlib.Path, texts: Sequence[str], base: pathlib.Path) -> Trial:
        """See `ExportTarget.check`. The requests that were tried become the warm-up of a server."""
        used = check_operations(folder)
        if self.server_version is not None:
            check_operations_of_server(used, check_server(self.server_version, self.precision))
        answers = dict(tf.saved_model.load(str(folder)).signatures)
        agreement = check_agreement(answers[DEFAULT_SIGNATURE], predictor, texts, self.precision)
        requests, batch_seconds = try_requests(answers, texts, BATCH_SIZES[self.variant])
        agreement |= check_without_python(folder, answers[DEFAULT_SIGNATURE], predictor, texts, self.precision)
        with write_errors_explained(base):
            write_warmup(folder, requests)
        facts = {
            "precision": self.precision,
            "variant": self.variant,
            "signatures": list(self._all_signatures(predictor)),
            "oldest_server": oldest_server(used),
            "processor": processor(used),
            **agreement,
        }
        return Trial(facts, batch_seconds)

    def write_beside(self, base: pathlib.Path, trial: Trial) -> None:
        """The files with which a server starts; they are written once, and may be edited."""
        write_server_files(base, self.variant, trial.batch_seconds)


class _Served(tf.Module):
    """What is saved: the functions, their weights, and the tokenizers' resources."""

    def __init__(self, predictor: Predictor, weights: Weights, functions: dict[str, Function]) -> None:
        super().__init__(name="kformer")
        self.source_tokenizer = predictor.source_tokenizer
        self.target_tokenizer = predictor.target_tokenizer
        self.weights = weights
        self.functions = functions


def save_for_this_machine(
    predictor: Predictor, folder: pathlib.Path, n_best: int, signatures: Sequence[str] = ()
) -> None:
    """Writes a SavedModel for this machine: portable, in float32, and not tried out.

    Args:
        predictor: What to save.
        folder: An empty folder.
        n_best: N: a translator's `serving_default` gives `translation` and `score` of shape (B, N), best first.
        signatures: Those of the predictor beside `serving_default`, which take time to make.

    Raises:
        OSError: The folder cannot be written to, or the disk is full.
    """
    weights = Weights()
    functions = functions_of_this_machine(predictor, weights, n_best, signatures)
    with write_errors_of_tensorflow():
        _save(predictor, weights, functions, folder)
    describe(folder, predictor, {})
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
