"""What does it cost to fine-tune an imported model: all of its weights, its decoder alone, or adapters (LoRA)?

    python -m benchmarks.bridges.adapters

The folder has the form and the sizes of opus-mt-en-es with random weights (see `opus_mt_folder.py`): 77 million of
them. It is imported once. Then each way trains on verses of `bible-en-es` with Keras's Adam, in a fresh process, by the
code of `docs/fine-tuning.md`. The seconds are the median over the updates after the first ones, in which TensorFlow
traces the step for each shape of a batch. The peak is the largest resident memory of the process (ru_maxrss).
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import kformer
from benchmarks.bridges import opus_mt_folder
from kformer.cli.startup import start_tensorflow

TOKENS = 1024  # source or target tokens of a batch
MAX_LENGTH = 128
RANK = 8


def all_weights(model: Any) -> None:
    """Every weight learns."""


def decoder_alone(model: Any) -> None:
    """The encoder and the embeddings, which both sides share, stay as they are."""
    for name in ("encoder", "shared_embedding"):
        model.get_layer(name).trainable = False


def adapters(model: Any) -> None:
    """Adapters of the queries and values of self-attention learn, and nothing else."""
    for side in ("encoder", "decoder"):
        for layer in model.get_layer(side).layers:
            layer.self_attention.query_projection.enable_lora(rank=RANK)
            layer.self_attention.value_projection.enable_lora(rank=RANK)
    for weight in model.weights:
        weight.trainable = "lora" in weight.name


WAYS: dict[str, Callable[[Any], None]] = {
    "all weights": all_weights,
    "the decoder alone": decoder_alone,
    f"adapters of rank {RANK}": adapters,
}


def train_here(run: str, way: str, updates: int) -> dict[str, Any]:
    """Trains in this process: weights that learn, seconds of an update, and peak memory in bytes."""
    import keras
    import numpy as np

    from kformer.data import BatchPlan, encode_pairs, load_corpus, make_dataset

    translator = kformer.Translator.from_run(run)
    model, pad_id = translator.model, translator.config.pad_id
    WAYS[way](model)
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    pairs = encode_pairs(load_corpus("bible-en-es").train, *tokenizers, MAX_LENGTH)
    batches = make_dataset(BatchPlan(pairs, TOKENS), shuffle_seed=1, repeat=True)
    model.compile(
        keras.optimizers.Adam(1e-4), kformer.losses.LabelSmoothedCrossEntropy(pad_id=pad_id), jit_compile=False
    )
    ends = [time.perf_counter()]
    note = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter()))
    model.fit(batches, steps_per_epoch=updates, callbacks=[note], shuffle=False, verbose=0)
    return {
        "weights": sum(int(np.prod(weight.shape)) for weight in model.trainable_weights),
        "seconds": float(np.median(np.diff(ends)[updates // 2 :])),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base", choices=[*opus_mt_folder.SIZES])
    parser.add_argument("--updates", type=int, default=60, help="of each way; the first half is not timed")
    parser.add_argument("--here", nargs=2, metavar=("RUN", "WAY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    start_tensorflow()
    if arguments.here is not None:
        print(json.dumps(train_here(*arguments.here, arguments.updates)))
        return
    with tempfile.TemporaryDirectory() as folder:
        opus_mt_folder.make(pathlib.Path(folder, "opus-mt"), arguments.size)
        kformer.import_model(pathlib.Path(folder, "opus-mt"), pathlib.Path(folder, "run"))
        print("| what learns | weights that learn | seconds for an update | minutes for 1,000 | peak memory, MB |")
        print("| --- " * 5 + "|")
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.bridges.adapters", "--updates", str(arguments.updates)]
            command += ["--here", str(pathlib.Path(folder, "run")), way]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            seconds, peak = found["seconds"], found["peak"] / 1e6
            print(
                f"| {way} | {found['weights']:,} | {seconds:.2f} | {seconds * 1000 / 60:.0f} | {peak:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
