"""What do fewer heads for keys and values, and fewer decoder layers, save in a search?

    python -m benchmarks.variants.fewer_heads_and_layers

Models of the paper's base size with random weights: with 8, 2 and 1 heads of keys and values, and with encoders and
decoders of 6 + 6, 10 + 2 and 12 + 1 layers. Printed for each: its parameters, the memory of its caches for one
hypothesis of one sentence (of the target, and of the source), and the speed of searches over sources and targets of
32 tokens, with the products and the cache of a float32 export. The searches take turns; the best round counts.
"""

import argparse
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from kformer.config import DecodingConfig, TransformerConfig
from kformer.export.in_place_cache import InPlaceCache
from kformer.export.quantization import ServedArithmetic
from kformer.export.variables import Weights
from kformer.models import build_transformer
from kformer.models.stepwise import StepwiseTransformer
from kformer.text.searcher import Searcher

VARIANTS = {
    "8 heads, 6 + 6": {},
    "2 heads for keys and values": {"num_key_value_heads": 2},
    "1 head for keys and values": {"num_key_value_heads": 1},
    "10 + 2 layers": {"num_encoder_layers": 10, "num_decoder_layers": 2},
    "12 + 1 layers": {"num_encoder_layers": 12, "num_decoder_layers": 1},
    "12 + 1 layers, 1 head for keys and values": {
        "num_encoder_layers": 12,
        "num_decoder_layers": 1,
        "num_key_value_heads": 1,
    },
}


def sources(config: TransformerConfig, batch_size: int, length: int) -> np.ndarray:
    """(B, S) random ids that are no special ones; the last is the end."""
    ids = np.random.default_rng(1).integers(3, config.source_vocab_size, (batch_size, length)).astype("int32")
    ids[:, -1] = config.end_id
    return ids


def cache_bytes(config: TransformerConfig, length: int) -> tuple[int, int]:
    """Bytes of keys and values of the target and of the source, both of so many positions."""
    stepwise = StepwiseTransformer(build_transformer(config, dtype="float32"), length)
    context, history = stepwise.start(sources(config, 1, length), length)
    target, source = (
        sum(keras.ops.convert_to_numpy(tensor).nbytes for pair in pairs for tensor in pair)
        for pairs in (history.caches, context.memory)
    )
    return target, source


def search(config: TransformerConfig, beam_size: int, length: int) -> Callable[[np.ndarray], None]:
    """A search for exactly `length` tokens, as a float32 export computes it."""
    arithmetic = ServedArithmetic("float32", Weights())
    model = build_transformer(config, dtype=arithmetic)
    frozen = arithmetic.freeze(model)
    decoding = DecodingConfig(beam_size=beam_size, min_length=length, max_extra_length=length)
    searcher = Searcher(model, config, decoding, cache=InPlaceCache)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def find(source: tf.Tensor) -> tf.Tensor:
        with frozen:
            return searcher.find(source, tf.fill([tf.shape(source)[0]], length)).tokens

    return lambda source: find(tf.constant(source)).numpy()


def measure(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Target tokens a second of each variant, for each batch size and beam size."""
    speeds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for batch_size, beam_size in [(batch, beam) for batch in arguments.batch_sizes for beam in arguments.beam_sizes]:
        configs = {name: _config(arguments, changes) for name, changes in VARIANTS.items()}
        searches = {name: search(config, beam_size, arguments.length) for name, config in configs.items()}
        seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
        for number in range(arguments.rounds + 1):
            for name, find in searches.items():
                source = sources(configs[name], batch_size, arguments.length)
                began = time.perf_counter()
                find(source)
                if number:  # The first time also traces.
                    seconds[name].append(time.perf_counter() - began)
        for name, found in seconds.items():
            speeds[name].append(batch_size * arguments.length / min(found))
    return speeds


def _config(arguments: argparse.Namespace, changes: dict[str, int]) -> TransformerConfig:
    vocabulary = {"source_vocab_size": arguments.vocab_size, "target_vocab_size": arguments.vocab_size}
    return TransformerConfig.of_size("base", **vocabulary, **changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--beam-sizes", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--vocab-size", type=int, default=37000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)
    speeds = measure(arguments)
    cells = [f"batch {batch}, beam {beam}" for batch in arguments.batch_sizes for beam in arguments.beam_sizes]
    print(f"| model | parameters | target's cache | source's cache | tokens a second: {' | '.join(cells)} |")
    print("| --- " * (4 + len(cells)) + "|")
    for name, changes in VARIANTS.items():
        config = _config(arguments, changes)
        parameters = build_transformer(config).count_params()
        kilobytes = [f"{number / 1024:,.0f} KB" for number in cache_bytes(config, arguments.length)]
        found = " | ".join(f"{speed:,.0f}" for speed in speeds[name])
        print(f"| {name} | {parameters:,} | {' | '.join(kilobytes)} | {found} |", flush=True)


if __name__ == "__main__":
    main()
