"""Reads word vectors that another program has trained, and finds those of a vocabulary.

Three formats are distinguished by content: word2vec's text (the first line has the number of words and the size of a
vector), word2vec's binary (the same line, then words and float32 numbers), and GloVe's text (no such line). In a text
file, a line has a word and its numbers, with single blanks between them. fastText's `.vec` files are word2vec's text.

Shapes: N words in a file, F words found, E size of a vector, V vocabulary.
"""

import codecs
import dataclasses
import pathlib
import re
import warnings
from typing import BinaryIO, NamedTuple

import numpy as np

from kformer.files.compression import compression_of
from kformer.tokenizers.base import Tokenizer
from kformer.wording import count

_HEADER = re.compile(rb"(\d{1,15}) (\d{1,15})\s*")
_LONGEST_LINE = 1 << 20  # bytes; a vector of 10,000 numbers with twenty digits takes a fifth of it
_FORMATS = (
    "Expected is a file in word2vec's text or binary format or in GloVe's text format, such as one that gensim's "
    "KeyedVectors.save_word2vec_format wrote."
)


@dataclasses.dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors.

    Attributes:
        words: the row of each word.
        vectors: (N, E) float32, finite.

    Examples:
        >>> vectors = WordVectors({"the": 0, "cat": 1}, np.array([[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]], "float32"))
        >>> vectors.dim, vectors.row(("Cat",)), vectors.row(("dog",))
        (3, 1, None)
    """

    words: dict[str, int]
    vectors: np.ndarray

    @property
    def dim(self) -> int:
        """The size of a vector, E."""
        return self.vectors.shape[1]

    def row(self, spellings: tuple[str, ...]) -> int | None:
        """The row of the first spelling that has a vector, as it is or, after all of these, in lower case."""
        for word in (*spellings, *(word.lower() for word in spellings)):
            if word in self.words:
                return self.words[word]
        return None


@dataclasses.dataclass(frozen=True, eq=False)
class FoundVectors:
    """The vectors of a vocabulary.

    Attributes:
        ids: (F,) int32, the ids that have a vector, in ascending order.
        vectors: (F, E) float32, their vectors.
        missing: the spellings of the other ids, except for ids that stand for no text.

    Examples:
        >>> FoundVectors(np.array([4, 6]), np.array([[0.5], [1.5]]), ["dog"]).report()
        '2 of 3 words have a vector, 1 are missing'
    """

    ids: np.ndarray
    vectors: np.ndarray
    missing: list[str]

    def report(self) -> str:
        """How many words have a vector, in words."""
        words = len(self.ids) + len(self.missing)
        return f"{len(self.ids):,} of {count(words, 'word')} have a vector, {len(self.missing):,} are missing"


def find_vectors(tokenizer: Tokenizer, *files: WordVectors) -> FoundVectors:
    """The vectors of a tokenizer's vocabulary.

    A word is looked up as it is, and then in lower case, because many files have lower case only. A subword that begins
    a word is looked up with SentencePiece's mark "▁" and then without it.

    Args:
        tokenizer: its `spellings` are looked up.
        files: the vectors, all of one size. A word that the first file does not have is looked up in the next one.

    Raises:
        ValueError: No word has a vector, or the tokenizer cannot give its words.

    Examples:
        >>> vectors = WordVectors({"the": 0, "cat": 1}, np.array([[0.5, 1.5], [2.5, 3.5]], "float32"))
        >>> tokenizer = kformer.tokenizers.SymbolTokenizer(["The", "dog"])
        >>> found = find_vectors(tokenizer, vectors)
        >>> found.ids.tolist(), found.vectors.tolist(), found.missing
        ([4], [[0.5, 1.5]], ['dog'])
    """
    ids, rows, missing = [], [], []
    for token_id, spellings in enumerate(tokenizer.spellings()):
        found = ((vectors, vectors.row(spellings)) for vectors in files)
        vector = next((vectors.vectors[row] for vectors, row in found if row is not None), None)
        if vector is not None:
            ids.append(token_id)
            rows.append(vector)
        elif spellings:
            missing.append(spellings[-1])
    if not ids:
        raise ValueError(
            f"None of the {count(len(missing), 'word')} of the vocabulary has a vector; the first ones are "
            f"{', '.join(map(repr, missing[:5]))}. Use vectors of the same language and of whole words, and with "
            'subwords try tokenizer="words".'
        )
    return FoundVectors(np.array(ids, "int32"), np.stack(rows), missing)


def read_word_vectors(path: str | pathlib.Path) -> WordVectors:
    """Reads a file in word2vec's text or binary format or in GloVe's text format, by gensim.

    If a word occurs twice, its first vector is taken.

    Raises:
        FileNotFoundError: There is no such file.
        ImportError: gensim is not installed.
        ValueError: The file has none of the formats, contradicts its first line, has rows of different lengths or
            numbers that are not finite, or its words are not UTF-8. The message says where and how to correct it.

    Examples:
        >>> import pathlib
        >>> _ = pathlib.Path("vectors.txt").write_text("the 0.5 1.5\\ncat 2.5 3.5\\n")
        >>> vectors = read_word_vectors("vectors.txt")
        >>> vectors.words, vectors.vectors[vectors.words["cat"]].tolist()
        ({'the': 0, 'cat': 1}, [2.5, 3.5])
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}. Name a file of word vectors. {_FORMATS}")
    try:
        from gensim.models import KeyedVectors  # not above: it loads slowly, and is optional
    except ImportError as error:
        raise ImportError("Word vectors are read by gensim. Run: pip install 'kformer[embeddings]'") from error
    with path.open("rb") as file:
        layout = _checked(path, file)
    fault = None
    with warnings.catch_warnings():
        # gensim does not close a file without a header. Python closes it when nothing refers to it any more; after an
        # error, the error object refers to it.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            read = KeyedVectors.load_word2vec_format(
                str(path.absolute()), binary=layout.binary, no_header=not layout.header_bytes
            )
        except (ValueError, EOFError, IndexError) as error:  # UnicodeDecodeError is a ValueError
            fault = str(error)
    if fault is not None:
        raise ValueError(
            f"{path} cannot be read: {fault}. It is damaged, its words are not UTF-8, or its first line does not "
            "belong to it. Write it again, for example by gensim's KeyedVectors.save_word2vec_format."
        )
    vectors = WordVectors(dict(read.key_to_index), read.vectors[: len(read.key_to_index)])
    _check_content(path, layout, vectors)
    return vectors


class _Layout(NamedTuple):
    """How a file is written."""

    binary: bool
    header_bytes: int  # length of the first line with its two numbers; 0: there is no such line
    rows: int


def _checked(path: pathlib.Path, file: BinaryIO) -> _Layout:
    """Finds the format, and checks everything that can be checked without reading numbers.

    gensim itself would repeat a single number over a whole row, ignore rows beyond the number in the first line, and
    allocate memory for that number of rows.
    """
    first = file.readline(_LONGEST_LINE)
    packed = compression_of(first)
    if packed is not None:
        raise ValueError(f"{path} is compressed by {packed}. Decompress it first.")
    if first.startswith(codecs.BOM_UTF8):
        raise ValueError(f"{path} begins with a byte order mark (U+FEFF). Remove it: tail -c +4 FILE > NEW.")
    header = _HEADER.fullmatch(first)
    if header is None:
        if not _is_row(first):
            raise ValueError(f"{path} is empty, or its first line is no vector. {_FORMATS}")
        file.seek(0)
        return _Layout(False, 0, _check_rows(path, file, first.rstrip().count(b" "), first_line=1))
    rows, dim = map(int, header.groups())
    second = file.readline(_LONGEST_LINE)
    binary = bool(second) and not _is_row(second) and not _is_text(second)
    if binary:
        # Each word has at least one byte and the blank after it, and four bytes for each number.
        complete = rows * (2 + 4 * dim) <= path.stat().st_size - len(first)
        found = "too few bytes follow"
    else:
        file.seek(len(first))
        lines = _check_rows(path, file, dim, first_line=2)
        complete, found = rows == lines, f"{lines:,} follow"
    if not rows or not dim or not complete:
        raise ValueError(
            f"The first line of {path} promises {count(rows, 'word')} with {count(dim, 'number')} each, but {found}. "
            "Complete the file, or correct its first line."
        )
    return _Layout(binary, len(first), rows)


def _check_rows(path: pathlib.Path, file: BinaryIO, dim: int, first_line: int) -> int:
    """Checks that each line has a word in UTF-8 and `dim` numbers, and returns the number of lines."""
    rows = 0
    for number, line in enumerate(file, first_line):
        rows += 1
        line = line.rstrip()
        if line.count(b" ") != dim:
            raise ValueError(
                f"Line {number:,} of {path} has {count(line.count(b' '), 'number')}, but {dim:,} are expected. A line "
                "has a word and its numbers, with single blanks between them. Correct or remove this line."
            )
        try:
            line.partition(b" ")[0].decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"The word in line {number:,} of {path} is not UTF-8: {error}. Convert the file, for example by iconv."
            ) from error
    return rows


def _check_content(path: pathlib.Path, layout: _Layout, read: WordVectors) -> None:
    bad = ~np.isfinite(read.vectors).all(axis=1)
    if bad.any():
        word = list(read.words)[int(np.argmax(bad))]
        raise ValueError(
            f"{path} has numbers that are not finite; the first word with such numbers is {word!r}. "
            "Remove it, or train the vectors again."
        )
    # A blank follows each word, and perhaps a line feed comes before it. If words repeat, the sum is not known.
    read_bytes = read.vectors.nbytes + sum(len(word.encode()) + 2 for word in read.words)
    if layout.binary and len(read.words) == layout.rows:
        left = path.stat().st_size - layout.header_bytes - read_bytes
        if left > 0:
            raise ValueError(
                f"The first line of {path} promises {count(layout.rows, 'word')}, and {left:,} bytes are left after "
                "them. Correct the first line."
            )


def _is_row(line: bytes) -> bool:
    """Whether a line has a word and numbers that are written in digits."""
    word, *numbers = line.rstrip().split(b" ")
    try:
        return bool(word and numbers) and all(np.isfinite([float(number) for number in numbers]))
    except ValueError:
        return False


def _is_text(line: bytes) -> bool:
    try:
        return all(character.isprintable() for character in line.decode("utf-8").rstrip())
    except UnicodeDecodeError:
        return False
