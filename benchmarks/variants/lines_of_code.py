"""How many lines of code does each variant of the model have?

    python -m benchmarks.variants.lines_of_code

Counted are the statements of its classes and functions, without docstrings, comments and blank lines, each as long as
`ast.unparse` writes it.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable

from kformer.layers import (
    adaptive_depth,
    depth,
    position_bias,
    positional_encoding,
    reach,
    relative_positions,
    rotary_positions,
    windowed_attention,
)
from kformer.layers.embedding import ProjectedTokenEmbedding
from kformer.layers.feed_forward import FeedForward, GatedFeedForward
from kformer.layers.normalization import RMSNormalization
from kformer.layers.segments import SegmentEmbedding, segment_ids
from kformer.models import decoder_only, encoder_only
from kformer.tasks import classify, language_model, masked_language_model, tag

VARIANTS: dict[str, list[type | Callable]] = {
    "sinusoidal positions": [positional_encoding.PositionalEncoding, positional_encoding.sinusoids],
    "learned positions": [positional_encoding.LearnedPositionalEncoding],
    "rotary positions": [rotary_positions.RotaryPositions],
    "ALiBi": [position_bias.LinearBias],
    "relative positions (Shaw et al.)": [relative_positions.RelativePositions],
    "relative positions (T5's buckets)": [position_bias.BucketedBias],
    "a feed-forward network": [FeedForward],
    "the same with a gate": [GatedFeedForward],
    "RMS norm": [RMSNormalization],
    "a window of attention": [windowed_attention.Band, windowed_attention.Blocks, reach.Window],
    "shared layers": [depth.SharedDepth],
    "adaptive depth": [adaptive_depth.AdaptiveDepth, adaptive_depth.Halting, depth.Ponder],
    "embeddings of another size": [ProjectedTokenEmbedding],
    "segments": [SegmentEmbedding, segment_ids],
    "a classifier": [encoder_only.build_classifier, classify.ClassifyTask, classify.Classifier],
    "a tagger": [encoder_only.build_tagger, tag.TagTask, tag.Tagger],
    "a masked language model": [
        encoder_only.build_masked_language_model,
        masked_language_model.MaskedLanguageModelTask,
    ],
    "a language model": [
        decoder_only.build_language_model,
        decoder_only.StepwiseLanguageModel,
        language_model.LanguageModelTask,
        language_model.LanguageModel,
    ],
}


def lines(thing: type | Callable) -> int:
    """The lines of code of a class or function."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return len([line for line in ast.unparse(tree).splitlines() if line.strip()])


def main() -> None:
    print("| variant | lines of code |\n| --- | ---: |")
    for name, parts in VARIANTS.items():
        print(f"| {name} | {sum(map(lines, parts))} |")


if __name__ == "__main__":
    main()
