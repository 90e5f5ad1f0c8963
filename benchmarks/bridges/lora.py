"""What does LoRA save when an imported translator is fine-tuned: memory, time and trained weights?

    python -m benchmarks.bridges.lora

A folder in the form of opus-mt-en-es with random weights (see `opus_mt_folder.py`) is imported. Then three fresh
processes load the run and begin from its weights: one only loads it; one trains all weights; one trains adapters of
rank 8 on the queries and values of every attention, and nothing else (Hu et al. 2021, section 4.2). Both train on the
same batches of `bible-en-es` with the same optimizer. The table has the seconds of a step, the best of those after the
first, and the largest resident memory of the process (ru_maxrss). The loss is that of the last step: random weights
learn little in a few steps, so it only shows that both of them learn.
"""

import argparse
import json
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

WAYS = ("only loaded", "all weights", "LoRA")
RANK = 8


def run_here(way: str, run: pathlib.Path, steps: int, tokens: int) -> dict[str, Any]:
    """Fine-tunes in this process."""
    import keras

    import kformer
    from kformer.data import BatchPlan, encode_pairs, load_corpus, make_dataset
    from kformer.training.compile import compile_model

    keras.utils.set_random_seed(1)
    translator = kformer.Translator.from_run(run)
    model, config = translator.model, translator.config
    seconds, losses = [], []
    if way != "only loaded":
        if way == "LoRA":
            adapt(model)
        training = kformer.TrainingConfig(learning_rate_scale=0.2, warmup_steps=steps, precision="float32")
        compile_model(model, config, training)
        pairs = load_corpus("bible-en-es").train[:2000]
        tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
        plan = BatchPlan(encode_pairs(pairs, *tokenizers, max_length=64), tokens_per_batch=tokens)
        batches = list(make_dataset(plan, shuffle_seed=1, repeat=False).take(steps))
        for inputs, targets in batches:
            began = time.perf_counter()
            losses.append(float(model.train_on_batch(inputs, targets, return_dict=True)["loss"]))
            seconds.append(time.perf_counter() - began)
    return {
        "seconds": min(seconds[1:], default=None),
        "loss": losses[-1] if losses else None,
        "trained": sum(int(weight.shape.num_elements()) for weight in model.trainable_weights) if losses else 0,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def adapt(model: Any) -> None:
    """Gives the queries and values of every attention adapters, which alone learn."""
    for side in ("encoder", "decoder"):
        for layer in model.get_layer(side).layers:
            for attention in (layer.self_attention, getattr(layer, "cross_attention", None)):
                if attention is not None:
                    attention.query_projection.enable_lora(rank=RANK)
                    attention.value_projection.enable_lora(rank=RANK)
    for weight in model.weights:
        weight.trainable = "lora" in weight.name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base", choices=["tiny", "base"])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=1024, help="of a batch")
    parser.add_argument("--here", nargs=2, metavar=("WAY", "RUN"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        way, run = arguments.here
        print(json.dumps(run_here(way, pathlib.Path(run), arguments.steps, arguments.tokens)))
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kformer-lora-"))
    try:
        made, run = folder / "opus-mt", folder / "run"
        module = [sys.executable, "-m", "benchmarks.bridges.opus_mt_folder", str(made), "--size", arguments.size]
        subprocess.run(module, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, "-m", "kformer", "import", str(made), str(run)], check=True)
        own = [sys.executable, "-m", "benchmarks.bridges.lora", "--steps", str(arguments.steps)]
        own += ["--tokens", str(arguments.tokens), "--here"]
        rows = []
        for way in WAYS:
            answer = subprocess.run([*own, way, str(run)], check=True, stdout=subprocess.PIPE, text=True).stdout
            rows.append({"way": way, **json.loads(answer.splitlines()[-1])})
            print(json.dumps(rows[-1]), file=sys.stderr)
    finally:
        shutil.rmtree(folder)
    print("| way | trained weights | seconds a step | peak, MB | loss |", "| --- " * 5 + "|", sep="\n")
    for row in rows:
        seconds, loss = (f"{row[name]:.2f}" if row[name] is not None else "-" for name in ("seconds", "loss"))
        print(f"| {row['way']} | {row['trained']:,} | {seconds} | {row['peak'] / 1e6:,.0f} | {loss} |")


if __name__ == "__main__":
    main()
