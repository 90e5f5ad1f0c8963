"""Checks of the targets of classifiers and taggers, before anything is computed. They need no TensorFlow.

A corpus is looked through once: it keeps the labels that were found.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable

from kformer.config import task_kind
from kformer.data.corpus import Corpus
from kformer.data.pairs import Pair
from kformer.wording import count
from kformer.writing_systems import WHITESPACE

_BLANKS = re.compile(f"[{WHITESPACE}]+")


def words_of(text: str) -> list[str]:
    """What stands between blanks, as a tagger and the vocabulary of labels divide texts.

    Examples:
        >>> words_of(" one two\\u3000three")
        ['one', 'two', 'three']
    """
    return [word for word in _BLANKS.split(text) if word]


def labels_of(target: str) -> list[str]:
    """The labels of a target, in the Unicode form NFC, in which labels are compared.

    Examples:
        >>> labels_of("caf\\u00e9") == labels_of("cafe\\u0301")
        True
    """
    return words_of(unicodedata.normalize("NFC", target))


def check_targets(task: str, pairs: Iterable[Pair]) -> None:
    """Refuses pairs whose targets no model of the task can learn or be compared with. Blank pairs are left out.

    Args:
        task: One of `kformer.config.TASKS`.
        pairs: Texts with their targets.

    Raises:
        ValueError: A target of a classifier is not one label, or one of a tagger not a tag for each word.

    Examples:
        >>> check_targets("tag", [("one two", "A B")])
    """
    check = _CHECKS.get(task_kind(task).targets)
    if check is None:
        return
    for text, target in pairs:
        if text.strip() or target.strip():
            check(text, target)


def check_corpus(task: str, corpus: Corpus) -> None:
    """As `check_targets`, for the parts that a model is trained on, without pairs of which one side is blank.

    Raises:
        ValueError: A target is wrong, no label of the validation part is one of the training part, or a translator
            would be trained on labels.
    """
    if task_kind(task).targets == "text" and corpus.task is not None and task_kind(corpus.task).has_labels:
        raise ValueError(f"The corpus {corpus.name} has labels and no translations. Train with --task {corpus.task}.")
    if not task_kind(task).has_labels:
        return
    known, asked = _labels(task, corpus)
    if asked and known.isdisjoint(asked):
        raise ValueError(
            f"The corpus {corpus.name!r} has no validation label that is also a training label. Received: "
            f"{_some(asked)} to validate on, and {_some(known)} to train on. Take both parts from the same data."
        )


def unknown_labels(task: str, corpus: Corpus) -> str | None:
    """A note on validation labels that are no training labels; None if there are none."""
    if not task_kind(task).has_labels:
        return None
    known, asked = _labels(task, corpus)
    unknown = asked - known
    if not unknown:
        return None
    return (
        f"{count(len(unknown), 'validation label')} not among the training labels, so that no answer can be right "
        f"there: {_some(unknown)}"
    )


def _labels(task: str, corpus: Corpus) -> tuple[set[str], set[str]]:
    """The labels of the training and of the validation part; all targets are checked when they are first asked for."""
    check = _CHECKS[task_kind(task).targets]

    def find() -> tuple[set[str], set[str]]:
        return _checked_labels(check, corpus.train), _checked_labels(check, corpus.valid)

    return corpus.found_labels(task, find)


def _checked_labels(check: Callable[[str, str], None], pairs: Iterable[Pair]) -> set[str]:
    """The labels of all pairs but those of which one side is blank."""
    labels: set[str] = set()
    for text, target in pairs:
        if text.strip() and target.strip():
            check(text, target)
            labels.update(labels_of(target))
    return labels


def _check_label(text: str, label: str) -> None:
    words = words_of(label)
    if len(words) != 1:
        remedy = f"Write {'_'.join(words[:3])!r}, for example." if words else "Add the label, or remove the line."
        raise ValueError(
            f"A label must be one word without blanks. Received: {label[:60]!r} for the text {text[:60]!r}. {remedy}"
        )


def _check_tags(text: str, tags: str) -> None:
    words, found = len(words_of(text)), len(words_of(tags))
    if words != found:
        raise ValueError(
            f"Every word needs one tag. Received: {count(words, 'word')} and {count(found, 'tag')} for the text "
            f"{text[:60]!r}. Separate words by blanks, and tags, too."
        )


# By the targets of a task, see `TaskKind`.
_CHECKS: dict[str, Callable[[str, str], None]] = {"label": _check_label, "tags": _check_tags}


def _some(labels: set[str]) -> str:
    """The first labels, in words."""
    first = sorted(labels)[:3]
    return ", ".join(map(repr, first)) + (", ..." if len(labels) > len(first) else "")
