"""Writes and reads tokenizers: each is a directory with tokenizer.json and the files of its vocabulary."""

import hashlib
import json
import pathlib

from kformer.files.checksums import checksum
from kformer.files.writing import replacing_folder, temporary_folder
from kformer.tokenizers.base import Tokenizer
from kformer.tokenizers.byte_bpe import MERGES_FILE, ByteBPETokenizer
from kformer.tokenizers.keras_nlp import ASSETS_FOLDER, CONFIG_FILE, KerasNLPTokenizer
from kformer.tokenizers.piece_vocabulary import PIECES_FILE, LlamaTokenizer, PieceVocabularyTokenizer
from kformer.tokenizers.sentencepiece import MODEL_FILE, SentencePieceTokenizer
from kformer.tokenizers.symbols import SYMBOLS_FILE, SymbolTokenizer
from kformer.tokenizers.wordpiece import WordPieceTokenizer
from kformer.tokenizers.words import WordTokenizer

DESCRIPTION_FILE = "tokenizer.json"
KINDS: dict[str, type[Tokenizer]] = {
    kind.kind: kind
    for kind in (
        SentencePieceTokenizer,
        PieceVocabularyTokenizer,
        WordPieceTokenizer,
        LlamaTokenizer,
        ByteBPETokenizer,
        SymbolTokenizer,
        WordTokenizer,
        KerasNLPTokenizer,
    )
}
_SHARED, _SOURCE, _TARGET = "shared", "source", "target"
_WRITTEN = {DESCRIPTION_FILE, MODEL_FILE, PIECES_FILE, MERGES_FILE, SYMBOLS_FILE, CONFIG_FILE, ASSETS_FOLDER}


def save_tokenizer(tokenizer: Tokenizer, directory: str | pathlib.Path) -> None:
    """Writes `tokenizer.json` and the vocabulary into a directory of their own.

    A tokenizer that is already there is replaced. On an error nothing is changed there.

    Raises:
        ValueError: The directory contains other files than a tokenizer's.

    Examples:
        >>> import os
        >>> save_tokenizer(SymbolTokenizer(["c", "a", "t"]), "letters")
        >>> sorted(os.listdir("letters"))
        ['symbols.json', 'tokenizer.json']
    """
    directory = pathlib.Path(directory)
    _check_replaceable(directory)
    with replacing_folder(directory) as folder:
        _write(tokenizer, folder)


def load_tokenizer(directory: str | pathlib.Path) -> Tokenizer:
    """Reads a tokenizer that `save_tokenizer` wrote.

    Raises:
        FileNotFoundError: The directory or one of its files is missing.
        ValueError: tokenizer.json is damaged, or names an unknown kind of tokenizer.

    Examples:
        >>> save_tokenizer(SymbolTokenizer(["K", "AE", "T"]), "sounds")
        >>> load_tokenizer("sounds").symbols
        ('K', 'AE', 'T')
    """
    directory = pathlib.Path(directory)
    path = directory / DESCRIPTION_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist. Pass a directory that save_tokenizer wrote.")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        kind = description["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}. Save the tokenizer again.") from error
    if kind not in KINDS:
        raise ValueError(f"{path} names the kind {kind!r}; known kinds are {', '.join(KINDS)}. Update kformer.")
    return KINDS[kind].read_files(directory, description)


def fingerprint_of(tokenizer: Tokenizer) -> str:
    """A hash of what `save_tokenizer` writes: two tokenizers with the same one make the same ids of a text.

    Examples:
        >>> fingerprint_of(SymbolTokenizer(["a"])) == fingerprint_of(SymbolTokenizer(["a"]))
        True
    """
    with temporary_folder() as folder:
        _write(tokenizer, folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        sums = "".join(f"{checksum(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)
    return hashlib.sha256(sums.encode()).hexdigest()


def save_tokenizers(directory: str | pathlib.Path, source: Tokenizer, target: Tokenizer) -> None:
    """Writes a pair of tokenizers into folders `source` and `target`, or into `shared` if both are the same object.

    Raises:
        ValueError: The directory contains other files than those of tokenizers.

    Examples:
        >>> import os
        >>> save_tokenizers("tokenizers", SymbolTokenizer(["c", "a", "t"]), SymbolTokenizer(["K", "AE", "T"]))
        >>> sorted(os.listdir("tokenizers"))
        ['source', 'target']
    """
    parts = {_SHARED: source} if source is target else {_SOURCE: source, _TARGET: target}
    directory = pathlib.Path(directory)
    _check_replaceable(directory)
    with replacing_folder(directory) as folder:
        for name, tokenizer in parts.items():
            (folder / name).mkdir()
            _write(tokenizer, folder / name)


def load_tokenizers(directory: str | pathlib.Path) -> tuple[Tokenizer, Tokenizer]:
    """Reads the source and target tokenizers that `save_tokenizers` wrote. A shared one is returned as one object.

    Raises:
        FileNotFoundError: The directory does not contain a pair of tokenizers.

    Examples:
        >>> shared = SymbolTokenizer(["one", "uno"])
        >>> save_tokenizers("tokenizers", shared, shared)
        >>> source, target = load_tokenizers("tokenizers")
        >>> source is target
        True
    """
    directory = pathlib.Path(directory)
    if (directory / _SHARED).is_dir():
        shared = load_tokenizer(directory / _SHARED)
        return shared, shared
    if not (directory / _SOURCE).is_dir() or not (directory / _TARGET).is_dir():
        raise FileNotFoundError(
            f"{directory} contains neither a folder {_SHARED!r} nor folders {_SOURCE!r} and {_TARGET!r}. "
            "Pass a directory that save_tokenizers wrote."
        )
    return load_tokenizer(directory / _SOURCE), load_tokenizer(directory / _TARGET)


def _write(tokenizer: Tokenizer, directory: pathlib.Path) -> None:
    details = tokenizer.write_files(directory)
    description = {"kind": tokenizer.kind, **details}
    (directory / DESCRIPTION_FILE).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def _check_replaceable(directory: pathlib.Path) -> None:
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ValueError(f"{directory} is a file, but a directory was expected. Choose another name.")
    foreign = _foreign(directory)
    if foreign:
        raise ValueError(
            f"{directory} contains other files than those of tokenizers: {', '.join(foreign[:5])}. "
            "Nothing was written. Choose an empty or a new directory."
        )


def _foreign(directory: pathlib.Path) -> list[str]:
    """The names of all entries of the directory that do not belong to a tokenizer or a pair of tokenizers."""
    entries = sorted(directory.iterdir())
    names = {entry.name for entry in entries}
    if names <= {_SHARED, _SOURCE, _TARGET} and all(entry.is_dir() for entry in entries):
        return [f"{entry.name}/{name}" for entry in entries for name in _foreign(entry)]
    ours = _WRITTEN if _describes_tokenizer(directory / DESCRIPTION_FILE) else set()
    return sorted(names - ours)


def _describes_tokenizer(path: pathlib.Path) -> bool:
    """Whether the file is a tokenizer.json of kformer. Other libraries use this name, too."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["kind"] in KINDS
    except (OSError, ValueError, KeyError, TypeError):
        return False
