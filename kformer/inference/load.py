"""A run folder or an exported SavedModel as one function that translates batches."""

import itertools
import pathlib
import warnings
from collections.abc import Callable, Mapping, Sequence

from kformer.config import DecodingConfig, answer_outputs
from kformer.files.checksums import SUMS_FILE, check_folder
from kformer.inference.find import check_search, check_task, find_model
from kformer.inference.saved_model_cache import saved_model_of
from kformer.process.hardware import cpu_multiplies_bfloat16
from kformer.runs.folder import RunFolder
from kformer.runtime.c_api import SavedModel, SavedModelError, text_array
from kformer.runtime.confinement import check_links
from kformer.runtime.version_files import check_files
from kformer.runtime.versions import DESCRIPTION_FILE, MOSTLY_UNKNOWN, description
from kformer.text.batches import BATCH_SIZE, BatchSeeds, Hypothesis, TranslateBatch, hypotheses
from kformer.text.options import option_arrays

OnText = Callable[[bytes], None]


def load_model(
    path: str | pathlib.Path,
    decoding: DecodingConfig | None = None,
    n_best: int = 1,
    threads_per_operation: int | None = None,
    task: str = "translate",
    on_unknown: OnText | None = None,
    trust: bool = False,
) -> TranslateBatch:
    """A function that translates batches, without Python's TensorFlow. Several threads may call it at the same time.

    A run folder's model is first saved as a SavedModel, which is kept: see `kformer.inference.saved_model_cache`.

    Args:
        path: A run folder, a SavedModel, or a folder of numbered SavedModel versions (the last one is taken).
        decoding: How a run folder's model searches; by default as the folder says (`RunFolder.decoding_config`).
            It must be None for a SavedModel, whose search is fixed.
        n_best: Hypotheses per text, at most the beam size.
        threads_per_operation: Threads that share one operation; None: as many as there are cores, which is best for
            one batch at a time. Where many batches are translated, 1 is best: `translate_all` then keeps every core
            busy with a batch of its own. The first model of a process decides for all, or Python's TensorFlow, if it
            computed something before.
        trust: Load a SavedModel whatever operations it has: see `SavedModel`.
        task: What the model must have learned. Another task's answers take the place of translations: labels with
            their probabilities, tags or continuations with their scores.
        on_unknown: Called for each text of which more than half is not in the vocabulary (`Tokenizer.fallback_ids`),
            by the thread that translates it. A SavedModel that `kformer export` made does not tell.

    Raises:
        FileNotFoundError: There is no model at `path`, or a run folder without weights.
        ValueError: `decoding` or `n_best` was given for a SavedModel, `n_best` exceeds the beam size, the model is of
            another task, a file of the model is damaged, or a SavedModel could do more than compute.
    """
    saved_model = _load(path, decoding, n_best, threads_per_operation, task, trust)

    def answer(texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        found = saved_model(texts)
        _tell_unknown(saved_model, texts, on_unknown)
        return hypotheses(*(found[name] for name in answer_outputs(task)))

    return answer


def load_generator(
    path: str | pathlib.Path,
    decoding: DecodingConfig | None,
    options: Mapping[str, float | int],
    on_unknown: OnText | None = None,
    trust: bool = False,
) -> TranslateBatch:
    """As `load_model`, for a language model that goes on with texts as the options say.

    Every batch has its own seed. Call the function for one batch at a time where the same seed is to draw the same
    texts again.

    Args:
        path, decoding, on_unknown, trust: See `load_model`.
        options: All inputs of the signature `generate_with_options` but the texts and the length penalty, which is that
            of the search.

    Raises:
        ValueError: As `load_model`; or the SavedModel was exported without that signature.
    """
    saved_model = _load(path, decoding, 1, None, "language-model", trust)
    name = "generate_with_options"
    if name not in saved_model.signatures:
        raise ValueError(f"{path} takes no options of sampling. Export it again with --signature {name}.")

    length_penalty = _length_penalty(path, decoding)
    seeds = BatchSeeds(int(options["seed"]))

    def answer(texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        inputs = option_arrays({**options, "length_penalty": length_penalty, "seed": seeds.next(len(texts))})
        found = saved_model.run(name, {"text": text_array(texts), **inputs})
        _tell_unknown(saved_model, texts, on_unknown)
        return hypotheses(*(found[output] for output in answer_outputs("language-model")))

    return answer


def _tell_unknown(model: SavedModel, texts: Sequence[bytes], on_unknown: OnText | None) -> None:
    """Calls `on_unknown` for the texts that the vocabulary mostly lacks, if the model can tell."""
    if on_unknown is None or MOSTLY_UNKNOWN not in model.signatures:
        return
    found = model.run(MOSTLY_UNKNOWN, {"text": text_array(texts)})[MOSTLY_UNKNOWN]
    for text in itertools.compress(texts, found):
        on_unknown(text)


def _length_penalty(path: str | pathlib.Path, decoding: DecodingConfig | None) -> float:
    """That of `decoding` or, by default, of the model's own search."""
    model = find_model(path)
    if isinstance(model, RunFolder):
        return model.decoding_config(decoding).length_penalty
    return description(model)["length_penalty"]


def _load(
    path: str | pathlib.Path,
    decoding: DecodingConfig | None,
    n_best: int,
    threads_per_operation: int | None,
    task: str,
    trust: bool,
) -> SavedModel:
    model = find_model(path)
    check_task(model, task)
    check_search(model, decoding, n_best)
    if isinstance(model, RunFolder):
        with saved_model_of(model, model.decoding_config(decoding), n_best) as kept:
            # This program has made it, and its checksums were compared.
            return _loaded(kept, threads_per_operation, True, "Remove that folder: it is made again")
    check_export(model, trust)
    return _loaded(model, threads_per_operation, trust, "Export the model again")


def threads_for(texts: int) -> int | None:
    """The best `threads_per_operation` for `translate_all` of so many texts."""
    return 1 if texts > BATCH_SIZE else None


def check_export(path: pathlib.Path, trust: bool = False) -> None:
    """Refuses an export with a damaged file, and warns where this CPU is slow with it.

    Args:
        path: The export.
        trust: Follow links that lead out of its folder.

    Raises:
        ValueError: A file differs from its checksum, is too large, is no regular file, or lies elsewhere.
        OSError: A file cannot be read.
    """
    check_files(path)
    if not trust:
        check_links(path)
    sums = (path / DESCRIPTION_FILE).parent
    if (sums / SUMS_FILE).is_file():
        check_folder(sums, remedy="Export the model again.", within=path)
    if description(path).get("precision") == "bfloat16" and not cpu_multiplies_bfloat16():
        warnings.warn(
            f"{path} computes in bfloat16, which this CPU only emulates: it will be slow. "
            "Export with --precision float32 for this machine.",
            stacklevel=3,
        )


def _loaded(path: pathlib.Path, threads_per_operation: int | None, trust: bool, remedy: str) -> SavedModel:
    try:
        model = SavedModel(path, threads_per_operation, trust)
        model.text_input  # noqa: B018 (raises where the model takes something else than texts)
        return model
    except SavedModelError as error:
        reason = str(error).strip().splitlines()[0]  # The lines below name places in the graph.
        raise ValueError(f"{path} cannot be loaded: {reason}. {remedy}.") from error
