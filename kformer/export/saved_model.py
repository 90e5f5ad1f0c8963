"""The translator as a SavedModel for TensorFlow Serving, or for anything else that loads SavedModels."""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kformer.checksums import note_checksums
from kformer.export.graph import n_best_function, served_function
from kformer.export.lint import is_refused
from kformer.export.loops import run_loops_as_functions
from kformer.export.operations import operations
from kformer.export.server_files import write_server_files
from kformer.export.servers import check_operations_of_server, check_server, oldest_server, processor
from kformer.export.variables import Weights
from kformer.export.versions import DESCRIPTION_FILE, check_kind, check_version, next_version
from kformer.export.warmup import write_warmup
from kformer.files import WriteError, check_folder_path, staging_folder, sync_tree
from kformer.tokenizers import SymbolTokenizer, Tokenizer
from kformer.tokenizers.base import NUM_SPECIAL_IDS
from kformer.translation.translator import Translator

SIGNATURE = "serving_default"
# How far scores may be apart, as a share of their mean.
SCORE_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.05, "int8": 0.1}


def export_saved_model(
    translator: Translator,
    directory: str | pathlib.Path,
    version: int | None = None,
    precision: str = "float32",
    variant: str = "portable",
    samples: Sequence[str] = (),
    server_version: str | None = None,
) -> pathlib.Path:
    """Writes `directory/<version>/`, a SavedModel with the signature `serving_default`, and tries it out.

    The signature takes `text` and gives `translation` and `score`, all of shape (B,), so that TensorFlow
    Serving may batch requests. The folder appears whole or not at all: it is written under a name
    that TensorFlow Serving does not look at, checked, and renamed.

    The export has variables of its own for the weights, because TensorFlow's C API would not restore Keras's
    variables; only a Python loader would.

    Before the folder gets its name, the export and `translator` translate the same texts. `versions.DESCRIPTION_FILE`
    in the folder says how the export was made and how much the results of the two differ. `warmup.WARMUP_FILE` has
    requests that a server runs before it answers with this version, each tried. Beside the versions stand
    `batching.config`, `models.config` and `monitoring.config` for the server's start; they are written once, and may
    be edited.

    Args:
        translator: What to export.
        directory: The model's base folder; made if missing.
        version: Number of the new version; by default one more than the last one in `directory`. Exports into
            one folder at the same time get different numbers.
        precision: The number format of the matrix products. "float32"; "bfloat16", half the size, faster on CPUs with
            AVX512-BF16 or AMX, but slow on others; "int8", a quarter of the size, on x86 only.
        variant: "portable" has core operations only and runs everywhere. "xla" compiles the search for each shape of
            its inputs, in float32 only; TensorFlow Serving needs `--xla_cpu_compilation_enabled` for it.
        samples: The texts to try it out on, and to which int8 is fitted; by default `translator.samples`, which for a
            run folder are validation sources. If there are none, texts of random pieces are used, which say little
            about how a trained model behaves.
        server_version: The TensorFlow Serving that is to run it, such as "2.17"; None: whichever can.
            `assets.extra/kformer.json` names the oldest that has all operations, and the processor that they need.

    Returns:
        The path of the new version.

    Raises:
        FileExistsError: The version exists already.
        OSError: `directory` cannot be a folder or cannot be written to, or the disk is full, for example.
        ValueError: `version` is negative, `precision` or `variant` is unknown, the graph holds an operation that
            cannot be served, or that the server of `server_version` lacks, or the export's scores differ too much from
            the translator's.
    """
    directory = pathlib.Path(directory)
    check_kind(precision, variant)
    server = None if server_version is None else check_server(server_version, precision)
    check_folder_path(directory)
    if version is not None:
        check_version(directory, version)
    texts = samples or translator.samples or random_texts(translator.source_tokenizer)
    with staging_folder(directory, "export") as fresh:
        weights = Weights()
        served = _Served(translator, weights, served_function(translator, weights, precision, variant, texts))
        with _told_where(directory):
            tf.saved_model.save(served, str(fresh), signatures={SIGNATURE: served.translate})
            if precision == "int8":
                run_loops_as_functions(fresh)
        used = check_operations(fresh)
        if server is not None:
            check_operations_of_server(used, server)
        answer = tf.saved_model.load(str(fresh)).signatures[SIGNATURE]
        agreement = check_agreement(answer, translator, texts, precision)
        with _told_where(directory):
            batch_seconds = write_warmup(fresh, SIGNATURE, answer, texts)
            runs_on = {"oldest_server": oldest_server(used), "processor": processor(used)}
            _describe(fresh, translator, {"precision": precision, "variant": variant, **runs_on, **agreement})
            files = [file for file in fresh.rglob("*") if file.is_file()]
            note_checksums((fresh / DESCRIPTION_FILE).parent, files)
            sync_tree(fresh)
            write_server_files(directory, variant, batch_seconds)
        return _named(fresh, directory, version)


@contextlib.contextmanager
def _told_where(directory: pathlib.Path) -> Iterator[None]:
    """Turns an error in writing a file, also one of TensorFlow, into an OSError with a plain message."""
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        said = error.message if isinstance(error, tf.errors.OpError) else error.strerror or str(error)
        # TensorFlow puts the path of its own temporary file before the reason, and the operation behind it.
        reason = said.strip().splitlines()[0].split("; ")[-1].split(" [Op:")[0].rstrip(".")
        raise WriteError(
            f"The export could not be written to {directory}: {reason}. Nothing of it is left there. Make room on that "
            "disk, or name a folder on another one."
        ) from error


class _Served(tf.Module):
    """What is saved: the function, its weights, and the tokenizers' resources."""

    def __init__(
        self, translator: Translator, weights: Weights, translate: tf.types.experimental.PolymorphicFunction
    ) -> None:
        super().__init__(name="kformer")
        self.source_tokenizer = translator.source_tokenizer
        self.target_tokenizer = translator.target_tokenizer
        self.weights = weights
        self.translate = translate


def save_n_best(translator: Translator, folder: pathlib.Path, n_best: int) -> None:
    """Writes a SavedModel for this machine: portable, in float32, and not tried out.

    Args:
        translator: What to save.
        folder: An empty folder.
        n_best: N: `serving_default` gives `translation` and `score` of shape (B, N), best first.
    """
    weights = Weights()
    served = _Served(translator, weights, n_best_function(translator, weights, n_best))
    tf.saved_model.save(served, str(folder), signatures={SIGNATURE: served.translate})
    note_checksums(folder, [file for file in folder.rglob("*") if file.is_file()])


def check_operations(saved_model: str | pathlib.Path) -> set[str]:
    """Refuses a SavedModel that a stock TensorFlow Serving could not run.

    Returns:
        What `operations` gives.

    Raises:
        ValueError: There is a Python callback or an operation of the XLA bridge in it.
    """
    used = operations(saved_model)
    refused = sorted(filter(is_refused, used))
    if refused:
        raise ValueError(
            f"The graph holds operations that TensorFlow Serving does not run: {', '.join(refused)}. "
            "Use a tokenizer that is made of TensorFlow operations."
        )
    return used


def check_agreement(
    answer: Callable[..., Any], translator: Translator, texts: Sequence[str], precision: str
) -> dict[str, float]:
    """Translates `texts` with both: the share of identical translations, and how far the scores are apart.

    Args:
        answer: The signature of the export, loaded again.
        translator: What was exported.
        texts: What is translated.
        precision: Of the export.

    Raises:
        ValueError: Their scores differ by more than rounding to `precision` explains.
    """
    expected, found = translator.translate(tf.constant(list(texts))), answer(text=tf.constant(list(texts)))
    same = expected["translation"].numpy() == found["translation"].numpy()
    distance = np.abs(expected["score"].numpy() - found["score"].numpy()).mean()
    share = float(distance / max(np.abs(expected["score"].numpy()).mean(), 1e-9))
    if not share <= SCORE_TOLERANCE[precision]:  # also refuses NaN
        raise ValueError(
            f"The export does not compute what the translator does. Its scores on {len(texts)} texts differ by "
            f"{share:.2%} of their mean; rounding to {precision} explains at most {SCORE_TOLERANCE[precision]:.2%}. "
            "Export in float32."
        )
    return {"samples": len(texts), "identical_translations": float(same.mean()), "score_difference": share}


def random_texts(tokenizer: Tokenizer, number: int = 16) -> list[str]:
    """`number` texts of 1 to `number` random pieces; every call gives the same texts."""
    pieces = np.random.default_rng(0).integers(NUM_SPECIAL_IDS, tokenizer.vocab_size, (number, number))
    ids = tf.RaggedTensor.from_tensor(pieces.astype("int32"), lengths=range(1, number + 1))
    return [text.decode("utf-8", "replace") for text in tokenizer.detokenize(ids).numpy()]


def _describe(saved_model: pathlib.Path, translator: Translator, facts: dict[str, Any]) -> None:
    symbols = isinstance(translator.source_tokenizer, SymbolTokenizer)
    path = saved_model / DESCRIPTION_FILE
    path.parent.mkdir(exist_ok=True)
    description = {**facts, **translator.decoding.to_dict(), "symbols": symbols}
    path.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def _named(fresh: pathlib.Path, directory: pathlib.Path, version: int | None) -> pathlib.Path:
    """Gives a finished export its name: the version asked for, or the next one that no other export has taken."""
    while True:
        target = directory / str(next_version(directory) if version is None else version)
        try:
            # The system refuses it where the version exists, since a folder that is not empty cannot be replaced.
            return fresh.rename(target)
        except OSError:
            if version is not None:
                check_version(directory, version)
            if version is not None or not target.exists():
                raise
