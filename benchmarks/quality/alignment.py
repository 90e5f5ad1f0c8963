"""Which decoder layer's cross-attention finds the source token of a target token best?

    python -m benchmarks.quality.alignment [RUN]

The answer is known for a word of four letters or more that is once in the source and once, unchanged, in its
translation, as many names are. For each layer, this prints the share of such words whose first target token attends
most, in the mean of the heads, to a token of the same word in the source. By default it takes the preset `bible-en-es`
and its test verses.
"""

import functools
import re
import sys
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

import kformer
from kformer.data import load_corpus
from kformer.text import detailed

SENTENCES = 300
AT_ONCE = 50
WORD = re.compile(rb"[A-Z][a-z]{3,}")


def known(source: bytes, translation: bytes) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The places of words that are once in the source and once in the translation."""
    found = [{}, {}]
    for places, text in zip(found, (source, translation), strict=True):
        for match in WORD.finditer(text):
            places.setdefault(match[0], []).append(match.span())
    for word, spans in found[0].items():
        others = found[1].get(word, [])
        if len(spans) == len(others) == 1:
            yield spans[0], others[0]


def first_token(starts: np.ndarray, ends: np.ndarray, span: tuple[int, int]) -> int:
    """The number of the first token that has a byte of the span."""
    return int(np.nonzero((ends > span[0]) & (starts < span[1]) & (ends > starts))[0][0])


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "bible-en-es"
    translator = kformer.Translator.from_preset(name)
    texts = [source for source, _ in load_corpus("bible-en-es").test[:SENTENCES]]
    for layer in range(translator.config.num_decoder_layers):
        detailed.alignment_layer = lambda _, layer=layer: layer
        explain = tf.function(
            functools.partial(
                detailed.translate_detailed, translator.codec, translator.model, translator.searcher.find
            ),
            input_signature=[tf.TensorSpec([None], tf.string)],
        )
        right = words = 0
        for start in range(0, len(texts), AT_ONCE):
            batch = texts[start : start + AT_ONCE]
            found = {key: value.numpy() for key, value in explain(tf.constant(batch)).items()}
            for row, text in enumerate(batch):
                for source_span, target_span in known(text.encode(), found["translation"][row]):
                    token = first_token(found["target_start"][row], found["target_end"][row], target_span)
                    most = found["alignment"][row, token].argmax() + found["alignment_start"][row, token]
                    begins, ends = found["source_start"][row, most], found["source_end"][row, most]
                    right += ends > source_span[0] and begins < source_span[1]
                    words += 1
        print(f"layer {layer + 1} of {translator.config.num_decoder_layers}: {right} of {words} words", flush=True)


if __name__ == "__main__":
    main()
