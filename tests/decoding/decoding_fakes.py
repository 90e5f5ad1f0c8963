"""Models for the searches that a reader can compute by hand or in NumPy.

Ids: pad 0, start 1, end 2, then letters.
"""

import itertools

import numpy as np
from keras import ops

from kformer.decoding import MinLength, Prefix, SearchSpace

PAD, START, END = 0, 1, 2
LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = ["", "", "<end>", *LETTERS]


def search_space(max_lengths, buffer_length, min_length=0, prefix=None, constraints=()):
    """What may be produced, with the ids of this file."""
    if prefix is not None:
        constraints = [Prefix(prefix, PAD), *constraints]
    if not isinstance(min_length, int) or min_length:
        constraints = [MinLength(min_length), *constraints]
    return SearchSpace(START, END, PAD, max_lengths, buffer_length, constraints)


def ids(*words):
    """Words as rows of ids, filled up with pad ids."""
    longest = max(map(len, words))
    return np.array([[*map(VOCABULARY.index, word), *[PAD] * (longest - len(word))] for word in words], "int32")


def word(tokens):
    """The letters of one row of ids up to its end token, `.` for the end token itself."""
    text = "".join(VOCABULARY[token] for token in np.array(tokens))
    return text.replace("<end>", ".")


def words(result):
    """All hypotheses as words, a list a sentence."""
    return [[word(row) for row in hypotheses] for hypotheses in np.array(result.tokens)]


def spelling_model(probabilities):
    """A model that knows what may follow each prefix: `{"": {"b": 0.4, "t": 0.6}, "b": {"e": 1.0}, ...}`.

    `.` is the end token; it has probability 1 behind every prefix that is not listed. The state is the prefix's number.
    """
    prefixes = ["", *sorted({prefix + letter for prefix, row in probabilities.items() for letter in row})]
    table = np.zeros((len(prefixes), len(VOCABULARY)), "float32")
    following = np.zeros((len(prefixes), len(VOCABULARY)), "int32")
    for number, prefix in enumerate(prefixes):
        for letter, probability in probabilities.get(prefix, {".": 1.0}).items():
            token = END if letter == "." else VOCABULARY.index(letter)
            table[number, token] = probability
            if letter != ".":
                following[number, token] = prefixes.index(prefix + letter)
    with np.errstate(divide="ignore"):
        logits = np.log(table)

    def next_logits(tokens, prefix):
        prefix = ops.take(ops.reshape(following, (-1,)), prefix * len(VOCABULARY) + tokens)
        return ops.take(logits, prefix, axis=0), prefix

    return next_logits


class HistoryModel:
    """Random logits for every history: those of "ab" say nothing about those of "ba" or of another sentence.

    Args:
        seed: int.
        sentences: how many different sentences it knows.
        vocab_size: V.
        max_length: longest sequence it is asked for.
    """

    def __init__(self, seed, sentences, vocab_size, max_length):
        self.vocab_size = vocab_size
        self.histories = vocab_size ** (max_length + 1)  # More than base-V numbers of max_length digits.
        shape = (sentences, self.histories, vocab_size)
        self.logits = np.random.default_rng(seed).normal(0, 2, shape).astype("float32")

    def state(self, sentences, beam_size=1):
        """For the sentences with these numbers: `sentence` and `history` (N,), and a shared `position` ()."""
        sentence = np.repeat(np.array(sentences, "int32"), beam_size)
        return {"sentence": sentence, "history": [np.zeros_like(sentence)], "position": np.int32(0)}

    def next_logits(self, tokens, state):
        written = ops.where(ops.equal(state["position"], 0), 0, tokens)  # The start token is no history.
        history = state["history"][0] * self.vocab_size + written
        table = ops.reshape(self.logits, (-1, self.vocab_size))
        logits = ops.take(table, state["sentence"] * self.histories + history % self.histories, axis=0)
        return logits, {**state, "history": [history], "position": state["position"] + 1}

    def token_log_probs(self, sentence, tokens):
        """NumPy: log probability of each of `tokens` behind those before it."""
        history, log_probs = 0, []
        for token in tokens:
            logits = self.logits[sentence, history].astype("float64")
            log_probs.append(logits[token] - np.log(np.exp(logits).sum()))
            history = history * self.vocab_size + token
        return np.array(log_probs)

    def all_hypotheses(self, sentence, limit, min_length=0, length_penalty=0.0):
        """NumPy: every possible result with its score; finished ones first, then those cut off, best first each."""
        letters = range(END + 1, self.vocab_size)
        finished = [
            (*body, END) for length in range(min_length, limit) for body in itertools.product(letters, repeat=length)
        ]
        cut = list(itertools.product(letters, repeat=limit))

        def score(tokens):
            return self.token_log_probs(sentence, tokens).sum() / ((5 + len(tokens)) / 6) ** length_penalty

        return [
            (tokens, score(tokens)) for group in (finished, cut) for tokens in sorted(group, key=score, reverse=True)
        ]


def echo_model(free):
    """Writes `free` letters of its own choice, then the same letters again, then the end token.

    The state records the tokens that the row was fed, (N, 2 * free + 1): the echo is read from there.
    """
    choice = np.full((free, len(VOCABULARY)), -np.inf, "float32")
    choice[:, END + 1 :] = np.random.default_rng(7).normal(0, 1, (free, len(LETTERS)))
    choice = np.concatenate([choice, np.zeros((1, len(VOCABULARY)), "float32")])

    def next_logits(tokens, state):
        record, position = state
        slots = ops.arange(2 * free + 1)
        record = ops.where(slots == position, ops.expand_dims(tokens, -1), record)
        source = ops.minimum(ops.maximum(position - free + 1, 0), 2 * free)  # Slot 0 holds the start token.
        heard = ops.sum(ops.where(slots == source, record, 0), axis=-1)  # (N,)
        told = ops.where(position < 2 * free, heard, END)
        echo = ops.where(ops.arange(len(VOCABULARY)) == ops.expand_dims(told, -1), 0.0, -np.inf)  # (N, V)
        own = ops.take(choice, ops.minimum(position, free), axis=0)  # (V,)
        return ops.where(position < free, own, echo), (record, position + 1)

    return next_logits
