"""How fast does `model.fit` train, beside Hugging Face Marian on PyTorch and a model of keras-nlp's layers?

    pip install -e '.[benchmarks]'
    python -m benchmarks.training.speed --output training.json

All systems train models of the same sizes on the same batches of real text (kformer's batches, so that all have the
same padding), each in a separate process, in turns. Only real target tokens count, no padding. A system's figure is
that of its best turn; the first pass over all shapes of batches, which compiles and packs, is not timed. The input
pipeline is timed alone: the faster it is than training, the less it can slow training down.
"""

import argparse
import itertools
import json
import pathlib
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common.worker import Worker
from kformer.cli.startup import start_tensorflow
from kformer.config import TrainingConfig, TransformerConfig
from kformer.data import BatchPlan, encode_pairs, load_corpus, make_dataset, train_tokenizers
from kformer.training.plan import plan_batches


class System(NamedTuple):
    """One way to train: what is run, and in which arithmetic."""

    name: str
    program: str  # key of trainers.TRAINERS
    precision: str


class Size(NamedTuple):
    """One model and its text."""

    corpus: str
    preset: str
    vocab_size: int
    tokens_per_batch: int
    layers: int | None = None  # of encoder and of decoder, where it is not the preset's


SYSTEMS = (
    System("kformer float32", "kformer", "float32"),
    System("kformer bfloat16", "kformer", "mixed_bfloat16"),
    System("Marian float32", "marian", "float32"),
    System("Marian bfloat16", "marian", "mixed_bfloat16"),
    System("keras-nlp float32", "keras-nlp", "float32"),
)
SIZES = {
    "cmudict": Size("cmudict", "small", 4000, 4096, 2),
    "bible": Size("bible-en-es", "small", 4000, 4096),
    "base": Size("bible-en-es", "base", 37000, 2048),
}


def prepare(size: Size, folder: pathlib.Path, turns: int, batches_a_turn: int) -> dict[str, Any]:
    """Writes configurations and batches: first one of every shape, then those that are timed."""
    corpus = load_corpus(size.corpus)
    training = TrainingConfig.of_size("small", vocab_size=size.vocab_size, tokens_per_batch=size.tokens_per_batch)
    training = training.replace(ema_decay=0.0)  # the peers average no weights
    if corpus.symbols:
        training = training.replace(tokenizer="symbols")
    source, target = train_tokenizers(corpus.train, training)
    layers = {} if size.layers is None else {"num_encoder_layers": size.layers, "num_decoder_layers": size.layers}
    vocabulary = max(source.vocab_size, target.vocab_size)
    transformer = TransformerConfig.of_size(
        size.preset, source_vocab_size=vocabulary, target_vocab_size=vocabulary, **layers
    )
    transformer.save(folder / "transformer.json")
    training.save(folder / "training.json")
    encoded = encode_pairs(corpus.train, source, target, training.max_length)
    plan = plan_batches(encoded, training)
    timed = list(itertools.islice(plan.endless(shuffle_seed=1), turns * batches_a_turn))
    one_a_shape = {(*inputs["source"].shape, target_out.shape[1]): (inputs, target_out) for inputs, target_out in timed}
    arrays = {}
    for number, (inputs, target_out) in enumerate([*one_a_shape.values(), *timed]):
        arrays |= {f"source_{number}": inputs["source"], f"target_in_{number}": inputs["target_in"]}
        arrays[f"target_out_{number}"] = target_out
    np.savez(folder / "batches.npz", **arrays)
    tokens = [int((target_out != encoded.target_pad_id).sum()) for _, target_out in timed]
    return {
        "shapes": len(one_a_shape),
        "padding_share": plan.padding_share,
        "pipeline_tokens_per_second": pipeline_rate(plan),
        "tokens": [sum(tokens[turn * batches_a_turn :][:batches_a_turn]) for turn in range(turns)],
    }


def pipeline_rate(plan: BatchPlan, batches: int = 500) -> float:
    """Real target tokens a second that the data set of `kformer train` yields while nothing trains."""
    dataset = make_dataset(plan, shuffle_seed=1, repeat=True)
    began, tokens = time.perf_counter(), 0
    for _, target_out in dataset.take(batches).as_numpy_iterator():
        tokens += int((target_out != plan.encoded.target_pad_id).sum())
    return tokens / (time.perf_counter() - began)


def measure(name: str, systems: list[System], turns: int, batches_a_turn: int, threads: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        prepared = prepare(SIZES[name], folder, turns, batches_a_turn)
        workers = {
            system.name: Worker("trainers", system.program, system.precision, folder, threads) for system in systems
        }
        for worker in workers.values():
            worker.ask([0, prepared["shapes"]])
        found = {system: {"seconds": [], "peak_bytes": 0} for system in workers}
        for turn in range(turns):
            first = prepared["shapes"] + turn * batches_a_turn
            for system, worker in workers.items():
                answer = worker.ask([first, first + batches_a_turn])
                found[system]["seconds"].append(answer["seconds"])
                found[system]["peak_bytes"] = answer["peak_bytes"]
                time.sleep(0.3)  # Idle threads of one system may go on spinning for a while.
        for worker in workers.values():
            worker.close()
    for figures in found.values():
        rates = [tokens / seconds for tokens, seconds in zip(prepared["tokens"], figures["seconds"], strict=True)]
        figures["tokens_per_second"] = max(rates)
    return {"size": name, **prepared, "systems": found}


def report(sizes: list[dict[str, Any]]) -> None:
    """Prints the table."""
    names = list(sizes[0]["systems"])
    print("\nReal target tokens a second; in brackets: peak memory in MB.\n")
    print(f"| model | padding | {' | '.join(names)} | best kformer / best peer | pipeline alone / best kformer |")
    print("|" + " --- |" * (4 + len(names)))
    for size in sizes:
        rates = {name: figures["tokens_per_second"] for name, figures in size["systems"].items()}
        ours = max((rate for name, rate in rates.items() if name.startswith("kformer")), default=float("nan"))
        peers = max((rate for name, rate in rates.items() if not name.startswith("kformer")), default=float("nan"))
        cells = [f"{rates[name]:,.0f} ({size['systems'][name]['peak_bytes'] / 1e6:,.0f})" for name in names]
        ratios = f"{ours / peers:.2f} | {size['pipeline_tokens_per_second'] / ours:.0f}"
        print(f"| {size['size']} | {size['padding_share']:.1%} | {' | '.join(cells)} | {ratios} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    names = [system.name for system in SYSTEMS]
    parser.add_argument("--systems", nargs="+", default=names, choices=names)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--batches", type=int, default=12, help="a turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=pathlib.Path, help="JSON of everything that was measured")
    arguments = parser.parse_args()
    systems = [system for system in SYSTEMS if system.name in arguments.systems]
    sizes = []
    for name in arguments.sizes:
        sizes.append(measure(name, systems, arguments.turns, arguments.batches, arguments.threads))
        print({system: round(f["tokens_per_second"]) for system, f in sizes[-1]["systems"].items()}, flush=True)
    report(sizes)
    if arguments.output:
        arguments.output.write_text(json.dumps({"date": time.strftime("%Y-%m-%d"), "sizes": sizes}, indent=2) + "\n")


if __name__ == "__main__":
    start_tensorflow()
    main()
