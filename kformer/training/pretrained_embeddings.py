"""Begins a run with embeddings that another program has trained.

The files of vectors are read only when a run begins. What the run needs of them is written into its folder.
"""

from typing import Any

import keras
import numpy as np

from kformer.config import TrainingConfig, TransformerConfig, task_kind
from kformer.data import EncodedPairs
from kformer.data.encoding import count_tokens
from kformer.data.word_vectors import FoundVectors, WordVectors, find_vectors, read_word_vectors
from kformer.files.checksums import check_file, replacing_noted
from kformer.layers import TokenEmbedding
from kformer.layers.initializers import STANDARD_DEVIATION
from kformer.models.transformer import SOURCE_EMBEDDING, TARGET_EMBEDDING, find_embedding
from kformer.runs.arrays import open_arrays
from kformer.runs.folder import RunFolder
from kformer.tokenizers import Tokenizer

# Embedding layer: the field of a TrainingConfig that names its file.
EMBEDDING_FILES = {SOURCE_EMBEDDING: "source_embeddings", TARGET_EMBEDDING: "target_embeddings"}
Sides = dict[str, WordVectors]  # by the name of the embedding layer


def embedding_files(training: TrainingConfig) -> dict[str, str]:
    """The files of vectors that a run begins with, by the names of the embedding layers."""
    files = {name: getattr(training, field) for name, field in EMBEDDING_FILES.items()}
    return {name: file for name, file in files.items() if file is not None}


def read_embeddings(task: str, training: TrainingConfig, has_initial_weights: bool) -> Sides:
    """Reads the files of vectors that a new run begins with; of a file for both sides, once.

    Args:
        task: What the model learns.
        training: The configuration of the run.
        has_initial_weights: Whether the run begins with the weights of another run.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A file is damaged, the two have vectors of different sizes, the run also begins with the weights of
            another run, the model has no encoder, or random embeddings would be frozen.
    """
    files = embedding_files(training)
    if files and has_initial_weights:
        raise ValueError(
            "A run that begins with another run's weights has the embeddings of that run. Received: "
            f"{', '.join(files.values())} as well. Leave out source_embeddings and target_embeddings, or "
            "initialize_from."
        )
    if not training.train_embeddings and not files and not has_initial_weights:
        raise ValueError(
            "Random embeddings must be trained. Received: train_embeddings=False without "
            "source_embeddings, target_embeddings or initialize_from. Give one of these, or leave train_embeddings out."
        )
    if files and "num_encoder_layers" not in task_kind(task).layers:
        raise ValueError(
            f"Pretrained embeddings are for models with an encoder. Received: {', '.join(files.values())} and the task "
            f"{task}. Leave out source_embeddings and target_embeddings."
        )
    if TARGET_EMBEDDING in files and task_kind(task).targets != "text":
        raise ValueError(
            f"target_embeddings is for translators. Received: {files[TARGET_EMBEDDING]} and the task {task}. Give the "
            "file as source_embeddings."
        )
    read = {file: read_word_vectors(file) for file in dict.fromkeys(files.values())}
    sizes = {file: vectors.dim for file, vectors in read.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            "The vectors of source_embeddings and target_embeddings must have one size. Received: "
            f"{', '.join(f'{size} numbers in {file}' for file, size in sizes.items())}. Use vectors of the same size."
        )
    return {name: read[file] for name, file in files.items()}


def fit_to_vectors(transformer: TransformerConfig, sides: Sides) -> TransformerConfig:
    """The configuration with embeddings of the size of the vectors.

    Raises:
        ValueError: The configuration asks for another size.
    """
    if not sides:
        return transformer
    dim, given = next(iter(sides.values())).dim, transformer.embedding_dim
    if given not in (None, dim):
        raise ValueError(
            f"The pretrained vectors have {dim} numbers. Received: embedding_dim={given}. Leave embedding_dim out, or "
            "use other vectors."
        )
    if given is not None or dim == transformer.d_model:
        return transformer
    return transformer.replace(embedding_dim=dim)


def find_embeddings(
    transformer: TransformerConfig, sides: Sides, tokenizers: tuple[Tokenizer, Tokenizer]
) -> dict[str, FoundVectors]:
    """The vectors of both vocabularies, by the names of the embedding layers.

    If source and target share one matrix, it has an entry for the source alone. A word of the vocabulary that has
    vectors in both files gets that of the source.
    """
    if transformer.embedding_tying == "all" and sides:
        return {SOURCE_EMBEDDING: find_vectors(tokenizers[0], *dict.fromkeys(sides.values()))}
    tokenizer_of = dict(zip(EMBEDDING_FILES, tokenizers, strict=True))
    return {name: find_vectors(tokenizer_of[name], vectors) for name, vectors in sides.items()}


def describe_embeddings(
    transformer: TransformerConfig, found: dict[str, FoundVectors], pairs: EncodedPairs
) -> dict[str, str]:
    """How many words of each vocabulary have a vector, and how many tokens of the training text have none.

    Returns:
        Texts by the names of the fields, such as "source_embeddings".
    """
    counts_of = {SOURCE_EMBEDDING: count_tokens(pairs.source_ids), TARGET_EMBEDDING: count_tokens(pairs.target_ids)}
    if transformer.embedding_tying == "all":
        counts_of[SOURCE_EMBEDDING] += counts_of[TARGET_EMBEDDING]
    described = {}
    for name, vectors in found.items():
        counts = counts_of[name]
        counts.pop(transformer.end_id, None)
        missing = 1 - sum(counts[token] for token in vectors.ids.tolist()) / counts.total()
        described[EMBEDDING_FILES[name]] = f"{vectors.report()}; {missing:.2%} of the tokens have none"
    return described


def save_embeddings(run: RunFolder, found: dict[str, FoundVectors]) -> None:
    """Writes the vectors of both vocabularies into the folder of a new run."""
    arrays: dict[str, Any] = {}
    for name, vectors in found.items():
        arrays |= {f"{name}/ids": vectors.ids, f"{name}/vectors": vectors.vectors}
    with replacing_noted(run.embeddings_file) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)


def assign_embeddings(run: RunFolder, model: keras.Model, training: TrainingConfig) -> None:
    """Puts the vectors that the run begins with into its model; other words keep their random embeddings.

    All vectors of a matrix are multiplied by one number, so that their components have the root mean square of random
    embeddings. The factor sqrt(d_model) of section 3.4, positions, dropout and learning rate are tuned for that size,
    and so is a softmax that shares the matrix. Vectors of word2vec and GloVe are several times as large. After the
    factor sqrt(d_model) they would be much larger than the positions, and the first logits would be far too large. The
    angles between the vectors, and their relative lengths, do not change.

    Raises:
        DamagedFileError: The file in the run folder was damaged or removed.
    """
    if not embedding_files(training):
        return
    check_file(run.embeddings_file, "Restore it from a copy, or begin a new run.")
    with open_arrays(run.embeddings_file) as arrays:
        for name in EMBEDDING_FILES:
            if f"{name}/ids" in arrays:
                matrix = find_embedding(model, name).embeddings
                values = np.array(keras.ops.convert_to_numpy(matrix))
                values[arrays[f"{name}/ids"]] = _as_large_as_random(arrays[f"{name}/vectors"])
                matrix.assign(values)


def freeze_embeddings(run: RunFolder, model: keras.Model, training: TrainingConfig) -> None:
    """Freezes the embeddings that do not begin at random, if the run does not train them. Call it before compiling.

    A softmax that shares a frozen matrix is frozen, too; projections are trained in any case.
    """
    if training.train_embeddings:
        return
    if run.initial.exists():
        layers = [layer for layer in model.layers if isinstance(layer, TokenEmbedding)]
    else:
        layers = [find_embedding(model, name) for name in embedding_files(training)]
    for layer in layers:
        layer.freeze_embeddings()


def _as_large_as_random(vectors: np.ndarray) -> np.ndarray:
    return vectors * np.float32(STANDARD_DEVIATION / np.sqrt(np.mean(np.square(vectors, dtype="float64"))))
