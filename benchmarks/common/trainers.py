"""Trainers behind one interface, each in a separate process.

    python -m benchmarks.common.trainers SYSTEM PRECISION FOLDER THREADS

The folder holds `transformer.json`, `training.json` and `batches.npz` (see `training/speed.py`). The process reads one
JSON request a line, `[first, last]`, trains on these batches, and answers with the seconds they took and its peak
memory.
"""

import json
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common.translators import peak_bytes

Batch = tuple[np.ndarray, np.ndarray, np.ndarray]  # source (B, S), target_in (B, T), target_out (B, T)
Train = Callable[[list[Batch]], None]


def kformer(folder: pathlib.Path, precision: str, threads: int) -> Train:
    """`model.fit` of this package with its loss, metrics, optimizer and the callbacks that look at every step."""
    _tensorflow(threads)
    import keras

    from kformer.config import TrainingConfig, TransformerConfig
    from kformer.models import build_transformer
    from kformer.training.callbacks import ProgressBar, StopOnNaN, TrackState
    from kformer.training.checkpoints import TrainingState
    from kformer.training.compile import compile_model

    keras.utils.set_random_seed(1)
    transformer = TransformerConfig.load(folder / "transformer.json")
    training = TrainingConfig.load(folder / "training.json").replace(precision=precision)
    model = build_transformer(transformer, dtype=precision)
    compile_model(model, transformer, training)
    state = TrainingState()
    callbacks = [TrackState(state), StopOnNaN(state), ProgressBar(state)]
    return _fit(model, lambda batch: ({"source": batch[0], "target_in": batch[1]}, batch[2]), callbacks)


def keras_nlp(folder: pathlib.Path, precision: str, threads: int) -> Train:
    """A model of keras-nlp's layers as its guides build it, with Keras's own loss over ids."""
    _tensorflow(threads)
    import keras
    from keras_nlp.layers import TokenAndPositionEmbedding, TransformerDecoder, TransformerEncoder

    keras.config.set_dtype_policy(precision)
    keras.utils.set_random_seed(1)
    config = json.loads((folder / "transformer.json").read_text())
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    embedding = TokenAndPositionEmbedding(config["target_vocab_size"], 512, config["d_model"], mask_zero=True)
    sizes = {"intermediate_dim": config["d_ff"], "num_heads": config["num_heads"], "dropout": config["dropout_rate"]}
    encoded, decoded = embedding(source), embedding(target)
    for _ in range(config["num_encoder_layers"]):
        encoded = TransformerEncoder(**sizes)(encoded)
    for _ in range(config["num_decoder_layers"]):
        decoded = TransformerDecoder(**sizes)(decoded, encoded)
    logits = embedding.token_embedding(decoded, reverse=True)
    model = keras.Model([source, target], keras.layers.Activation("linear", dtype="float32")(logits))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.Adam(1e-4, beta_2=0.98, epsilon=1e-9), loss)
    return _fit(model, lambda batch: (batch[:2], batch[2]), [])


def marian(folder: pathlib.Path, precision: str, threads: int) -> Train:
    """Hugging Face Marian on PyTorch, with a training loop of its own."""
    import torch

    from benchmarks.common.peers import new_marian

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    config = json.loads((folder / "transformer.json").read_text())
    model = new_marian(config).train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, betas=(0.9, 0.98), eps=1e-9)
    update = marian_update(model, optimizer, config["pad_id"], precision, label_smoothing=0.1)

    def train(batches: list[Batch]) -> None:
        for batch in batches:
            update(batch)

    return train


def marian_update(
    model: Any, optimizer: Any, pad_id: int, precision: str, label_smoothing: float
) -> Callable[[Batch], Any]:
    """A function that takes one step on a batch, and gives its loss as a tensor without waiting for the value."""
    import torch

    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=label_smoothing, ignore_index=pad_id)

    def update(batch: Batch) -> Any:
        source, target_in, target_out = (torch.from_numpy(part.astype("int64")) for part in batch)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "mixed_bfloat16"):
            logits = model(
                input_ids=source, attention_mask=(source != pad_id).long(), decoder_input_ids=target_in
            ).logits
        loss = loss_of(logits.float().reshape(-1, logits.shape[-1]), target_out.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return update


TRAINERS = {"kformer": kformer, "keras-nlp": keras_nlp, "marian": marian}


def _tensorflow(threads: int) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def _fit(model: Any, example: Callable[[Batch], Any], callbacks: list[Any]) -> Train:
    import tensorflow as tf

    from kformer.data.dataset import without_autotuning

    def train(batches: list[Batch]) -> None:
        examples = [example(batch) for batch in batches]
        signature = tf.nest.map_structure(lambda part: tf.TensorSpec([None, None], part.dtype), examples[0])
        dataset = tf.data.Dataset.from_generator(lambda: iter(examples), output_signature=signature).prefetch(4)
        model.fit(without_autotuning(dataset), callbacks=callbacks, verbose=0)

    return train


def serve(system: str, precision: str, folder: pathlib.Path, threads: int) -> None:
    arrays = np.load(folder / "batches.npz")
    names = ("source", "target_in", "target_out")
    batches = [tuple(arrays[f"{name}_{n}"] for name in names) for n in range(len(arrays.files) // 3)]
    answers, sys.stdout = sys.stdout, sys.stderr  # A progress bar must not write between the answers.
    train = TRAINERS[system](folder, precision, threads)
    for line in sys.stdin:
        first, last = json.loads(line)
        began = time.perf_counter()
        train(batches[first:last])
        print(
            json.dumps({"seconds": time.perf_counter() - began, "peak_bytes": peak_bytes()}), file=answers, flush=True
        )


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4]))
