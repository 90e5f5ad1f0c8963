"""What does each variant of the model change? Parameters, errors after equal steps, speed, and the size of an export.

    python -m benchmarks.variants.comparison --updates 2000

The size `tiny` is trained on `cmudict`: the paper's model first, then models that differ from it in one choice, or in
the few that belong together. All see the same batches. The word and phoneme error rates are those of greedy searches
for the first test words, by the weights' moving average after the last update. Then the exports, in float32 and int8,
translate these words as one file, beam 4, through TensorFlow's C API, in turns; the best round of each counts.

A line of JSON for each variant is appended to `results.jsonl` in the folder. What is there already is not trained
again. The speed is measured each time, so call the script once more while nothing else runs.
"""

import argparse
import json
import pathlib
import time
from typing import Any

import rich.console

from benchmarks.common.results import missing
from kformer.cli.startup import start_tensorflow
from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import load_corpus
from kformer.evaluation.evaluate import score, sentences
from kformer.export.saved_model import export_saved_model
from kformer.inference import Model
from kformer.runs.folder import RunFolder
from kformer.tasks.translator import Translator
from kformer.text.batches import answer_all
from kformer.training.train import train

# A gated network of two thirds of d_ff (512) has as many weights.
VARIANTS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "learned positions": {"positional_encoding": "learned"},
    "rotary positions": {"positional_encoding": "rotary"},
    "ALiBi": {"positional_encoding": "alibi"},
    "relative positions (Shaw)": {"positional_encoding": "relative"},
    "relative positions (T5 buckets)": {"positional_encoding": "relative_buckets"},
    "norm first": {"norm_first": True},
    "RMS norm": {"normalization": "rms_norm"},
    "GELU": {"activation": "gelu"},
    "SwiGLU": {"activation": "swiglu", "d_ff": 344},
    "no biases": {"use_bias": False},
    "1 head for keys and values": {"num_key_value_heads": 1},
    "window of 4": {"attention_window": 4},
    "decoder of 1 layer, encoder of 5": {"num_encoder_layers": 5, "num_decoder_layers": 1},
    "shared layers, 3 steps": {"depth": "shared"},
    "shared layers, a third of the learning rate": {"depth": "shared"},
    "shared layers, norm first": {"depth": "shared", "norm_first": True},
    "adaptive depth, up to 3 steps": {"depth": "adaptive"},
    "rotary, norm first, RMS norm, SwiGLU, no biases": {
        "positional_encoding": "rotary",
        "norm_first": True,
        "normalization": "rms_norm",
        "activation": "swiglu",
        "d_ff": 344,
        "use_bias": False,
    },
}
# Factors of the paper's learning rates, where a variant has another one than the size `tiny`.
LEARNING_RATE_SCALES = {"shared layers, a third of the learning rate": 0.4}
PRECISIONS = ("float32", "int8")
SEARCH = DecodingConfig(beam_size=4)


def folder_of(variant: str, arguments: argparse.Namespace) -> pathlib.Path:
    words = "".join(letter if letter.isalnum() else " " for letter in variant.lower()).split()
    return arguments.folder / f"{arguments.updates}-{arguments.seed}" / "-".join(words)


def trained(variant: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains a variant, or goes on with it; its results."""
    corpus, folder = load_corpus("cmudict"), folder_of(variant, arguments)
    training = TrainingConfig.of_size(
        "tiny",
        tokenizer="symbols",
        max_length=64,
        tokens_per_batch=2048,
        ema_decay=0.995,
        max_steps=arguments.updates,
        fit_warmup=False,  # the warm-up of the size, whatever the number of updates
        validation_steps=arguments.updates,  # one validation, at the end: the last weights are used
        keep_weights=0,
        seed=arguments.seed,
    )
    if variant in LEARNING_RATE_SCALES:
        training = training.replace(learning_rate_scale=LEARNING_RATE_SCALES[variant])
    run = RunFolder(folder / "run")
    console = rich.console.Console(stderr=True, soft_wrap=True, highlight=False)
    config = TransformerConfig.of_size("tiny", **VARIANTS[variant])
    train(corpus, run.path, config, training, resume="auto", console=console)
    greedy = Model(run.path, DecodingConfig(beam_size=1))
    scores = score(greedy, corpus.test, symbols=True, limit=arguments.words)
    translator = Translator.from_run(run.path, SEARCH)
    megabytes = {}
    for precision in PRECISIONS:
        export = export_saved_model(translator, folder / precision, version=1, precision=precision)
        files = [file for file in export.rglob("*") if file.is_file()]
        megabytes[precision] = sum(file.stat().st_size for file in files) / 1e6
    return {"parameters": translator.model.count_params(), "megabytes": megabytes, **scores}


def speeds(variants: list[str], arguments: argparse.Namespace) -> dict[tuple[str, str], float]:
    """Words a second of each variant and precision."""
    words = [source.encode() for source, _ in sentences(load_corpus("cmudict").test, symbols=True)[: arguments.words]]
    models = {
        (variant, precision): Model(folder_of(variant, arguments) / precision, threads_per_operation=1)
        for variant in variants
        for precision in PRECISIONS
    }
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in models}
    for number in range(arguments.rounds + 1):
        for key, model in models.items():
            began = time.perf_counter()
            answer_all(model, words)
            if number:  # The first time also prepares the operations.
                seconds[key].append(time.perf_counter() - began)
    return {key: len(words) / min(found) for key, found in seconds.items()}


def print_table(lines: list[dict[str, Any]], speed: dict[tuple[str, str], float]) -> None:
    columns = (
        "variant | parameters | words wrong | phonemes wrong | words a second: float32 | int8 | MB: float32 | int8"
    )
    print(f"| {columns} |\n{'| --- ' * 8}|")
    for line in lines:
        rates = [f"{100 * line[name]:.1f} %" for name in ("word_error_rate", "phoneme_error_rate")]
        rates += [f"{speed[line['variant'], precision]:,.0f}" for precision in PRECISIONS]
        rates += [f"{line['megabytes'][precision]:.1f}" for precision in PRECISIONS]
        print(f"| {line['variant']} | {line['parameters']:,} | {' | '.join(rates)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--words", type=int, default=2000, help="of the test part")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="of the measurement of speed; 0: only train")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/family"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    made = {name: getattr(arguments, name) for name in ("updates", "words", "seed")}
    results = arguments.folder / "results.jsonl"
    for row in missing(results, [{**made, "variant": variant} for variant in arguments.variants]):
        line = {**row, **trained(row["variant"], arguments), "date": time.strftime("%Y-%m-%d")}
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    if arguments.rounds:
        lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
        chosen = [line for line in lines if made.items() <= line.items() and line["variant"] in arguments.variants]
        print_table(chosen, speeds(arguments.variants, arguments))


if __name__ == "__main__":
    start_tensorflow()
    main()
