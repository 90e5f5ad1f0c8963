"""How probable a model finds answers that are given to it: a translation of its source, or a text.

A line is a pair, the source and the translation with a tab between them; for a language model it is a text.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kformer.text.batches import AnswerDrawn, Hypothesis, RefusedTextError
from kformer.wording import count

SCORE = "score"  # the signature
# From the name of a signature and its inputs, texts in UTF-8, to its outputs.
Run = Callable[[str, Mapping[str, Sequence[bytes]]], Mapping[str, np.ndarray]]


def scored(run: Run, has_sources: bool, on_cut: Callable[[bytes], None] | None = None) -> AnswerDrawn:
    """A function from lines to their given answers, with the log probability and the number of tokens of each.

    A blank line has neither: its score is not a number.

    Args:
        run: Of a model with the signature `score`.
        has_sources: Whether the model is a translator, whose lines are pairs.
        on_cut: Called for each line of which the model does not read the end.

    The function raises a `RefusedTextError` for a line of a translator without exactly one tab.

    Examples:
        >>> model = Model(kformer.presets.find_preset("cmudict").path, signatures=["score"])
        >>> [[right], [wrong]] = scored(model.run, has_sources=True)([b"c a t\\tK AE T", b"c a t\\tD AO G"])
        >>> right.text, right.tokens, right.score > wrong.score
        ('K AE T', 4, True)
    """

    def answer(texts: Sequence[bytes], seed: int | None = None) -> list[list[Hypothesis]]:
        given = [text for text in texts if text.strip()]
        found = iter(_of_lines(run, given, has_sources, on_cut) if given else [])
        return [[next(found) if text.strip() else Hypothesis("", math.nan)] for text in texts]

    return answer


def _of_lines(
    run: Run, lines: Sequence[bytes], has_sources: bool, on_cut: Callable[[bytes], None] | None
) -> list[Hypothesis]:
    if has_sources:
        sources, answers = zip(*map(_pair, lines), strict=True)
        outputs = run(SCORE, {"text": sources, "translation": answers})
    else:
        answers = tuple(lines)
        outputs = run(SCORE, {"text": answers})
    if on_cut is not None and "truncated" in outputs:
        for line, is_cut in zip(lines, outputs["truncated"], strict=True):
            if is_cut:
                on_cut(line)
    return [
        Hypothesis(text.decode("utf-8", "replace"), float(score), tokens=int(tokens))
        for text, score, tokens in zip(answers, outputs["log_probability"], outputs["tokens"], strict=True)
    ]


def _pair(line: bytes) -> list[bytes]:
    pair = line.split(b"\t")
    if len(pair) != 2:
        raise RefusedTextError(
            f"{count(len(pair), 'column')} where 2 were expected: a source and its translation, split by a tab.", line
        )
    return pair
