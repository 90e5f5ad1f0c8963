"""Short names for corpora of files, which stand in tables, logs and the headers of their columns."""

import collections
import os
import pathlib
from collections.abc import Sequence

from kformer.files.compression import SUFFIXES

Files = tuple[pathlib.Path, ...]


def short_names(corpora: Sequence[Files]) -> list[str]:
    """A name for each corpus: its first file without folders and suffix, or more, as far as names must differ.

    Corpora of the same files have the same name.

    Args:
        corpora: The files of each: one of pairs, or two parallel ones.

    Examples:
        >>> news, talks = pathlib.Path("data/news.tsv.gz"), pathlib.Path("data/talks.tsv")
        >>> short_names([(news,), (talks,), (news,)])
        ['news', 'talks', 'news']
        >>> short_names([(talks,), (pathlib.Path("old/talks.tsv"),), (pathlib.Path("talks.csv"),)])
        ['data/talks.tsv', 'old/talks.tsv', 'talks.csv']
    """
    lengths = dict.fromkeys(corpora, 0)
    for _ in range(max(len(file.parts) for files in corpora for file in files)):
        times = collections.Counter(_name(*item) for item in lengths.items())
        for files, length in lengths.items():
            lengths[files] = length + (times[_name(files, length)] > 1)
    return [_name(files, lengths[files]) for files in corpora]


def _name(files: Files, length: int) -> str:
    """The stem of the first file; or with a length of 1 or more, so many of the last parts of all paths.

    Bytes that are not UTF-8 are written as `\\xf1`.
    """
    if length:
        name = " ".join(str(pathlib.Path(*file.parts[-length:])) for file in files)
    else:
        name = files[0].name
        for suffix in SUFFIXES:
            name = name.removesuffix(suffix)
        name = pathlib.Path(name).stem
    return os.fsencode(name).decode("utf-8", "backslashreplace")
