"""sacreBLEU's tokenizers: which one suits the texts, and whether it can be used on this machine."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping

import sacrebleu

from kformer.config import BLEU_TOKENIZERS
from kformer.wording import did_you_mean
from kformer.writing_systems import is_han, is_unspaced

_PACKAGES = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}
_MOSTLY_HAN = 0.9  # Japanese has fewer, because of its kana


def tokenizer_of_parts(
    parts: Mapping[str, Iterable[str]], name: str | None = None
) -> tuple[str | None, dict[str, str]]:
    """The tokenizer for the texts of several corpora or test sets.

    Args:
        parts: The texts of each, by its name.
        name: The tokenizer for all; None: the one that suits the texts.

    Returns:
        Its name, or None if different ones suit the parts, so that each is to be scored by its own; and those to tell a
        user, because they are not the usual "13a", by the texts that they are for.

    Examples:
        >>> tokenizer_of_parts({"en": ["Go home."], "zh": ["他去了城里的市场。"]})
        (None, {'texts of zh': 'zh'})
        >>> tokenizer_of_parts({"a": ["市場に行った。"], "b": ["市場に行く。"]})
        ('char', {'texts': 'char'})
    """
    suitable = {part: name or suitable_bleu_tokenizer(texts) for part, texts in parts.items()}
    one = next(iter(suitable.values())) if len({*suitable.values()}) == 1 else None
    found = {"texts": one} if one is not None else {f"texts of {part}": each for part, each in suitable.items()}
    return one, {texts: each for texts, each in found.items() if each != "13a"}


def suitable_bleu_tokenizer(texts: Iterable[str]) -> str:
    """The name of the tokenizer by which BLEU counts the words of texts.

    It is "13a", which splits at blanks and punctuation, unless most letters belong to scripts without blanks between
    words: there "13a" would take whole sentences for words. For Chinese it is "zh", where each Chinese character is a
    word. For Japanese, Thai, Lao, Khmer, Burmese, Tibetan and the like it is "char", where each character is a word.

    Examples:
        >>> [suitable_bleu_tokenizer([text]) for text in ("Go home.", "他去了城里的市场。", "市場に行った。")]
        ['13a', 'zh', 'char']
    """
    characters = Counter(itertools.chain.from_iterable(texts))
    letters = {character: number for character, number in characters.items() if character.isalpha()}
    unspaced = sum(number for letter, number in letters.items() if is_unspaced(letter))
    if unspaced <= sum(letters.values()) / 2:
        return "13a"
    han = sum(number for letter, number in letters.items() if is_han(letter))
    return "zh" if han > _MOSTLY_HAN * unspaced else "char"


def bleu_metric(tokenizer: str) -> sacrebleu.BLEU:
    """Corpus BLEU with sacreBLEU's default settings and one of its tokenizers.

    Args:
        tokenizer: One of `kformer.config.BLEU_TOKENIZERS`. "flores101" and "flores200" are downloaded by sacreBLEU when
            they are used for the first time.

    Raises:
        ValueError: There is no such tokenizer; or it needs packages or a download that this machine does not have.
    """
    if tokenizer not in BLEU_TOKENIZERS:
        raise ValueError(
            f"The tokenizer of BLEU must be one of {', '.join(BLEU_TOKENIZERS)}. Received: {tokenizer!r}."
            f"{did_you_mean([tokenizer], BLEU_TOKENIZERS)}"
        )
    try:
        return sacrebleu.BLEU(tokenize=tokenizer)
    except (OSError, RuntimeError) as error:
        if tokenizer in _PACKAGES:
            remedy = f'It needs packages of its own: pip install "{_PACKAGES[tokenizer]}"'
        else:
            remedy = f"sacreBLEU downloads it at its first use ({error}). Connect the machine, or choose another one."
        raise ValueError(f"sacreBLEU's tokenizer {tokenizer} cannot be used here. {remedy}") from error
