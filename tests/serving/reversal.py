"""What the server of fake_server.py answers, by a rule that can be followed on paper.

A translation is the text with the words of each line reversed. Tokens are words; what a word has beyond four letters is
a token of its own, and so is each Chinese or Japanese character. A character of four bytes is two tokens, of which the
first has all bytes. Every line with words is a part; its translation ends with an end token.

A token of the translation attends with 0.5 to the one that it was copied from, with 0.25 to the next one in its line,
if there is one, and with the rest to the end of the line, which is no token. An end token attends to the end alone. The
probabilities of a translation's tokens are 0.9 and 0.5 in turns, and 1 for end tokens.
"""

import math
import re
from typing import NamedTuple


class Token(NamedTuple):
    """A token's place in its line, (number of the word, number of the piece), and in the whole text, in bytes."""

    place: tuple[int, int]
    start: int
    end: int


END = (-1, 0)  # the place of end tokens


def reversed_words(text):
    return "\n".join(" ".join(reversed(line.split())) for line in text.split("\n"))


def pieces(word):
    """The tokens of a word, in bytes."""
    if re.search("[\u3040-\u9fff]", word):
        return [character.encode() for character in word]
    if len(word.encode()) == 4 * len(word):
        return [piece for character in word for piece in (character.encode(), b"")]
    return [part.encode() for part in (word[:4], word[4:]) if part]


def tokens_of(text, end):
    """The tokens of each line with words, and behind them those in `end`, at the end of the line."""
    lines, line_start = [], 0
    for line in text.split("\n"):
        tokens = []
        for word, found in enumerate(re.finditer(r"\S+", line)):
            start = line_start + len(line[: found.start()].encode())
            for piece, content in enumerate(pieces(found[0])):
                tokens.append(Token((word, piece), start, start + len(content)))
                start += len(content)
        line_end = line_start + len(line.encode())
        if tokens:
            lines.append([*tokens, *(Token(place, line_end, line_end) for place in end)])
        line_start = line_end + 1  # behind the line break
    return lines


def attention(source, target):
    """The weights of a line's tokens over those of the line that it was made from."""
    places = [token.place for token in source]
    last_word = max(word for word, _ in places)
    weights = [[0.0] * len(source) for _ in target]
    for row, (place, _, _) in zip(weights, target, strict=True):
        if place != END:
            word, piece = place
            origin = places.index((last_word - word, piece))
            row[origin : origin + 2] = [0.5, 0.25][: len(source) - origin]
    return weights


def detailed(text):
    translation = reversed_words(text)
    sources, targets = tokens_of(text, end=[]), tokens_of(translation, end=[END])
    longest = max(map(len, sources))
    alignment, starts, first = [], [], 0
    for source, target in zip(sources, targets, strict=True):
        alignment += [row + [0.0] * (longest - len(row)) for row in attention(source, target)]
        starts += [first] * len(target)
        first += len(source)
    written = [token for line in targets for token in line]
    probabilities = [1 if token.place == END else (0.9, 0.5)[index % 2] for index, token in enumerate(written)]
    outputs = {
        "translation": translation,
        "score": -0.25,
        "log_probability": [math.log(probability) for probability in probabilities],
        "alignment": alignment,
        "alignment_start": starts,
        "divided": len(sources) > 1,
        "overlong": False,
        "truncated": False,
        "short": False,
    }
    for side, whole, lines in (("source", text, sources), ("target", translation, targets)):
        tokens = [token for line in lines for token in line]
        outputs[f"{side}_token"] = [whole.encode()[start:end].decode() for _, start, end in tokens]
        outputs[f"{side}_start"] = [token.start for token in tokens]
        outputs[f"{side}_end"] = [token.end for token in tokens]
        outputs[f"{side}_length"] = len(tokens)
    return outputs


def translated(text):
    return {"translation": reversed_words(text), "score": -0.25}


def n_best(text):
    best = reversed_words(text)
    return {"translation": [best, best.upper(), best.lower()], "score": [-0.25, -0.5, -1.75]}


ANSWERS = {"serving_default": translated, "translate_detailed": detailed, "n_best": n_best}
