"""Short names of corpora of files."""

import pathlib

import pytest

from kformer.data.file_names import short_names


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["/data/a/news.tsv.gz", "/data/a/talks.jsonl"], ["news", "talks"]),
        (["a.tsv", "a.tsv"], ["a", "a"]),
        (["a.tsv", "a.csv"], ["a.tsv", "a.csv"]),
        (["/x/en/a.tsv", "/x/fr/a.tsv", "/x/fr/b.tsv", "/x/en/a.tsv"], ["en/a.tsv", "fr/a.tsv", "b", "en/a.tsv"]),
        (["a.tsv", "b/a.tsv", "/b/a.tsv"], ["a.tsv", "b/a.tsv", "/b/a.tsv"]),
        (["train.en train.es", "train.en train.fr"], ["train.en train.es", "train.en train.fr"]),
        (["x/train.en x/train.es", "dev.tsv"], ["train", "dev"]),
        (["pipe"], ["pipe"]),
        (["ni\udcf1o.tsv"], [r"ni\xf1o"]),  # as Python has the name with this byte, which is not UTF-8
    ],
)
def test_a_name_is_as_long_as_names_must_differ(files, names):
    assert short_names([tuple(map(pathlib.Path, each.split())) for each in files]) == names
