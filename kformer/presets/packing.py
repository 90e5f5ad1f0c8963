"""Makes a run folder small enough to be passed on."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from kformer.config import DecodingConfig
from kformer.models import build_model
from kformer.presets.about import check_about
from kformer.runs.create import derived_run
from kformer.runs.folder import RunFolder
from kformer.runs.packed_weights import MOST_STEPS, save_packed_weights
from kformer.runs.weights import load_weights
from kformer.version import __version__


@dataclasses.dataclass(frozen=True)
class PackingReport:
    """What was packed.

    Attributes:
        run: The folder.
        size: The size of the whole folder in bytes.
        parameters: Number of weights.
        relative_error: The root mean square of the differences between the packed weights and the run's, divided by
            the root mean square of the run's weights.

    Examples:
        >>> report = PackingReport(find_preset("cmudict"), size=5_500_000, parameters=5_500_000, relative_error=0.007)
        >>> report.size / report.parameters  # bytes for each weight
        1.0
    """

    run: RunFolder
    size: int
    parameters: int
    relative_error: float


def pack_run(
    run: str | pathlib.Path,
    output: str | pathlib.Path,
    about: Mapping[str, Any] | None = None,
    steps: int = MOST_STEPS,
    decoding: DecodingConfig | None = None,
    samples: Sequence[str] = (),
) -> PackingReport:
    """Makes a small run folder: configurations, tokenizers, and the best weights in bytes (see `packed_weights`).

    It can be used like any run folder, to translate, evaluate and export, and a new run may begin with its weights.
    Files that only a resumed run needs are left out. The folder appears whole or not at all.

    Args:
        run: A run folder.
        output: The folder to make.
        about: Facts about the model for `preset.json`, plain values under any of the names in
            `kformer.presets.about.ABOUT`: a description, the command that trained it, its scores with their
            signatures, its licence, and the provenance of the text.
        steps: See `save_packed_weights`: fewer steps make a smaller file and a larger error.
        decoding: The default search of the packed model; None: that of the run's model.
        samples: Texts on which an export of the packed model is tried. They are passed on with the model. The run's own
            samples are validation sources, so they are used only if you give them: `RunFolder(run).samples()`.

    Raises:
        FileNotFoundError: `run` is no run folder, or has no weights yet.
        FileExistsError: `output` exists.
        ValueError: `about` has an unknown name, a weight is not finite, or `steps` is not from 1 to 127.

    Examples:
        >>> report = pack_run(find_preset("cmudict").path, "packed", steps=15)
        >>> report.parameters, round(report.relative_error, 2), report.size < report.parameters  # in bytes
        (5547520, 0.06, True)
    """
    about = about or {}
    check_about(about)
    source = RunFolder(run).check()
    with derived_run(source, output) as fresh:
        model = build_model(source.transformer_config(), dtype="float32")
        load_weights(source, model)
        error = save_packed_weights(fresh.packed_weights_file, model, steps)
        parameters = model.count_params()
        facts = {"parameters": parameters, "relative_error": error, "packed_by": f"kformer {__version__}"}
        fresh.write_preset({**about, **facts})
        source.decoding_config(decoding).save(fresh.decoding_file)
        if samples:
            fresh.write_samples(samples)
    packed = RunFolder(output)
    size = sum(file.stat().st_size for file in packed.path.rglob("*") if file.is_file())
    return PackingReport(packed, size, parameters, error)
