"""Reads translation data sets of TensorFlow Datasets (TFDS)."""

import itertools
import pathlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kformer.data.corpus import Corpus, hold_out
from kformer.data.pairs import Pair, Pairs

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_READ_BATCH = 1024


def load_named_tfds(name: str) -> Corpus:
    """The corpus `tfds:NAME` or `tfds:NAME@SOURCE-TARGET`; see `kformer.data.load_corpus`."""
    found = re.fullmatch(r"(.+)@([^@/\\]+-[^@/\\]+)", name)
    if found is None:
        return load_tfds(_builder(name), name=f"tfds:{name}")
    builder = _builder(found[1])
    return load_tfds(builder, name=f"tfds:{name}", languages=_languages(f"tfds:{found[1]}", builder.info, found[2]))


def _builder(name: str) -> "tfds.core.DatasetBuilder":
    """The builder of the data set with this name or in this directory. Its data are downloaded if necessary."""
    tfds = _import_tfds()
    directory = pathlib.Path(name).expanduser()
    if (directory / "dataset_info.json").is_file():
        return tfds.builder_from_directory(directory)
    if directory.is_dir() and any(directory.glob("*.*.txt")):
        return tfds.TranslateFolder(str(directory))
    if directory.is_absolute() or name.startswith(("~", ".")):
        raise ValueError(
            f"tfds:{name}: this directory contains neither a prepared data set (dataset_info.json) nor text files "
            "LANGUAGE.SPLIT.txt for tfds.TranslateFolder. Pass the directory of one configuration and version."
        )
    try:
        builder = tfds.builder(name)
    except tfds.core.DatasetNotFoundError as error:
        raise ValueError(
            f"TFDS knows no data set {name!r}. Names look like tfds:ted_hrlr_translate/pt_to_en. They are listed "
            "at https://www.tensorflow.org/datasets/catalog/overview#translate."
        ) from error
    builder.download_and_prepare()  # shows its progress, and does nothing if the data are on disk
    return builder


def _languages(name: str, info: Any, direction: str) -> tuple[str, str]:
    """The source and the target language of a direction such as en-de. A language's name may contain hyphens, too."""
    pairs = itertools.permutations(_texts(name, info), 2)
    directions = {f"{source}-{target}": (source, target) for source, target in pairs}
    if direction not in directions:
        raise ValueError(f"{name} has no direction {direction!r}. Choose one of: {', '.join(sorted(directions))}.")
    return directions[direction]


def load_tfds(
    builder: "tfds.core.DatasetBuilder", name: str | None = None, languages: tuple[str, str] | None = None
) -> Corpus:
    """Reads the pairs of a prepared TFDS builder.

    Without `languages`, source and target are the supervised keys if the data set has them. Otherwise they are the
    first two languages of a `Translation` feature, or else the first two text features, in alphabetical order, because
    TFDS stores no other order. The validation split may be called `validation`, `valid`, `val` or `dev`. If there is no
    validation or no test split, a part of `train` is held out for it, see `hold_out`.

    Args:
        builder: a builder whose data are on disk, as after `download_and_prepare()`.
        name: the name of the corpus. The default is `tfds:` with the builder's name.
        languages: the names of the source and the target feature, such as ("en", "pt").

    Raises:
        ValueError: There is no split `train`, there are fewer than two text features, or an example is not UTF-8.

    Examples:
        >>> import tensorflow_datasets as tfds  # doctest: +SKIP
        >>> builder = tfds.TranslateFolder("mine")  # es.train.txt, en.train.txt, es.valid.txt, ...  # doctest: +SKIP
        >>> load_tfds(builder, name="mine", languages=("es", "en")).train[0]  # doctest: +SKIP
        ('uno', 'one')
    """
    name = name or f"tfds:{builder.info.full_name}"
    source, target = _text_columns(name, builder.info, languages)
    splits = builder.info.splits
    if "train" not in splits:
        raise ValueError(f"{name} has no split train, only {', '.join(splits) or 'none'}. Choose another data set.")
    train: Pairs = list(_read(name, builder, "train", source, target))
    valid_name = next((split for split in ("validation", "valid", "val", "dev") if split in splits), None)
    if valid_name is not None:
        valid = list(_read(name, builder, valid_name, source, target))
    else:
        train, valid = hold_out(name, train)
    if "test" in splits:
        test = list(_read(name, builder, "test", source, target))
    else:
        train, test = hold_out(name, train)
    return Corpus(name=name, train=train, valid=valid, test=test)


def _import_tfds() -> Any:
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError("Corpora tfds:NAME need TensorFlow Datasets. Run: pip install tensorflow-datasets") from error
    return tfds


def _text_columns(name: str, info: Any, languages: tuple[str, str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The places of source and target in an example, each as the keys that lead to it."""
    columns = _texts(name, info)
    if languages is None:
        keys = tuple(info.supervised_keys or ())
        known = len(keys) == 2 and all(isinstance(key, str) and key in columns for key in keys)
        source, target = keys if known else tuple(columns)[:2]
    else:
        source, target = languages
    for language in (source, target):
        if language not in columns:
            raise ValueError(f"{name} has no text {language!r}. Choose languages from: {', '.join(columns)}.")
    return columns[source], columns[target]


def _texts(name: str, info: Any) -> dict[str, tuple[str, ...]]:
    """The names of the texts in an example, and the place of each as the keys that lead to it."""
    tfds = _import_tfds()
    features = info.features
    nested = {(): features, **{(key,): features[key] for key in sorted(features)}}
    columns: dict[str, tuple[str, ...]] = {}
    for path, feature in nested.items():
        if isinstance(feature, tfds.features.Translation):
            columns.update({language: (*path, language) for language in sorted(feature.languages)})
    texts = [key for key in sorted(features) if isinstance(features[key], tfds.features.Text)]
    columns.update({key: (key,) for key in texts})
    if len(columns) < 2:
        raise ValueError(
            f"{name} is not a translation data set: its features are {', '.join(sorted(features))}. Two features of "
            "type Text or one of type Translation were expected. Choose another data set."
        )
    return columns


def _read(name: str, builder: Any, split: str, source: tuple[str, ...], target: tuple[str, ...]) -> Iterator[Pair]:
    tfds = _import_tfds()
    number = 0
    for batch in tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False).batch(_READ_BATCH)):
        for texts in zip(_column(batch, source), _column(batch, target), strict=True):
            number += 1
            try:
                yield texts[0].decode("utf-8"), texts[1].decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{name}, split {split}, example {number}: not UTF-8 ({error}). Prepare the data set again."
                ) from error


def _column(batch: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        batch = batch[key]
    return batch
