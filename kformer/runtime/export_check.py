"""Whether an export may be loaded: it is whole (its checksums), and no link leads out of its folder."""

import pathlib
import warnings

from kformer.files.checksums import SUMS_FILE, check_folder
from kformer.process.hardware import cpu_multiplies_bfloat16
from kformer.runtime.confinement import check_links
from kformer.runtime.export_description import DESCRIPTION_FILE, description
from kformer.runtime.file_limits import check_files


def check_export(path: pathlib.Path, trust: bool = False) -> None:
    """Refuses an export with a damaged file, and warns where this CPU is slow with it.

    Args:
        path: The export.
        trust: Follow links that lead out of its folder.

    Raises:
        ValueError: A file differs from its checksum, is too large, is no regular file, or lies elsewhere.
        OSError: A file cannot be read.
    """
    check_files(path)
    if not trust:
        check_links(path)
    sums = (path / DESCRIPTION_FILE).parent
    if (sums / SUMS_FILE).is_file():
        check_folder(sums, remedy="Export the model again.", within=path)
    if description(path).get("precision") == "bfloat16" and not cpu_multiplies_bfloat16():
        warnings.warn(
            f"{path} computes in bfloat16, which this CPU only emulates: it will be slow. "
            "Export with --precision float32 for this machine.",
            stacklevel=3,
        )
