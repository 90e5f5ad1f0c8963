"""Pairs from Parquet and Arrow files, such as data sets of Hugging Face.

They need pyarrow: pip install 'kformer[arrow]'.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

from kformer.data.pairs import Pair
from kformer.data.sources.fields import DEFAULT_FIELDS, Fields, FieldsFile, missing_fields, pair_of
from kformer.data.sources.lines import StableFile
from kformer.files.compression import compression_of

_ROWS_AT_ONCE = 10_000


class ColumnarFile(FieldsFile):
    """The pairs of a Parquet file, or of an Arrow file or stream, read from the file each time, some rows at a time.

    White space of any kind becomes one blank; null is an empty text.

    Args:
        path: the file.
        fields: the columns of the source and of the target; "translation.en" is the field "en" of the column
            "translation". Otherwise as of `TableFile`.

    Raises:
        FileNotFoundError: There is no such file.
        ImportError: pyarrow is not installed.
        ValueError: The file is damaged, it changes while it is read or later, a column is missing or holds no texts, or
            there are no rows.

    Examples:
        >>> import pyarrow, pyarrow.parquet
        >>> pyarrow.parquet.write_table(pyarrow.table({"source": ["one"], "target": ["uno"]}), "pairs.parquet")
        >>> list(ColumnarFile("pairs.parquet"))
        [('one', 'uno')]
    """

    def __init__(self, path: str | pathlib.Path, fields: Fields = DEFAULT_FIELDS) -> None:
        super().__init__(path, fields)
        self._file = StableFile(path)

    def __iter__(self) -> Iterator[Pair]:
        arrow = _import_arrow()
        found = False
        with self._file.bytes() as file:
            is_packed = compression_of(file.peek(8)[:8]) is not None
            try:
                for batch in _batches(arrow, file):
                    columns = [_texts(arrow, self.path, batch, field) for field in self.fields]
                    for values in zip(*columns, strict=True):
                        found = True
                        yield pair_of([value or "" for value in values])
            except (arrow.ArrowException, OSError) as error:
                hint = " The whole file is compressed: decompress it first." if is_packed else ""
                hint = hint or ("" if file.seekable() else " It is a pipe: write the file to a disk first.")
                raise ValueError(f"{self.path} is damaged, or no Parquet or Arrow file: {error}.{hint}") from error
            if not found:
                raise ValueError(f"{self.path} has no rows. Pass a file with at least one pair.")


def _import_arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Parquet and Arrow files need pyarrow. Run: pip install 'kformer[arrow]'") from error
    return pyarrow


def _batches(arrow: Any, file: Any) -> Iterator[Any]:
    """The record batches of a file of any of the three forms."""
    beginning = file.peek(8)[:8]
    if beginning.startswith(b"PAR1"):
        yield from arrow.parquet.ParquetFile(file).iter_batches(_ROWS_AT_ONCE)
    elif beginning.startswith(b"ARROW1"):
        with arrow.ipc.open_file(file) as reader:
            yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        with arrow.ipc.open_stream(file) as reader:
            yield from reader


def _texts(arrow: Any, path: object, batch: Any, field: str) -> list[str | None]:
    """The texts of a field."""
    found = list(_columns(arrow, batch))
    columns = dict(found)
    if field not in columns:
        raise ValueError(missing_fields(path, [field], list(columns)))
    if sum(name == field for name, _ in found) > 1:
        raise ValueError(f"{path} has several columns {field!r}, and nothing says which one to read. Rename one.")
    column = columns[field]
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if arrow.types.is_integer(column.type) or arrow.types.is_boolean(column.type):
        column = column.cast(arrow.string())
    if not (arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type)):
        raise ValueError(f"{path}: {field!r} holds {column.type}, and no texts. Name a column of texts.")
    return column.to_pylist()


def _columns(arrow: Any, batch: Any) -> Iterator[tuple[str, Any]]:
    """All columns by their names, those within others with a dot."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not arrow.types.is_struct(column.type):
            yield name, column
            continue
        for inner in column.type:
            yield f"{name}.{inner.name}", arrow.compute.struct_field(column, inner.name)
