"""`kformer export`."""

import pkgutil
from typing import Annotated, Any

import typer

from kformer.cli.options import Path, PresetName, SearchOptions, choose_decoding, choose_model
from kformer.cli.progress import status
from kformer.cli.startup import start_tensorflow
from kformer.export.formats import EXPORT_FORMATS, check_format
from kformer.export.kinds import MORE_SIGNATURES, VARIANTS, check_kind, check_signatures
from kformer.export.server_versions import check_server
from kformer.files.writing import check_new_folder
from kformer.inference.find import check_answers
from kformer.runs.folder import RunFolder
from kformer.runtime.paths import check_export_path


def export(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="[RUN] DIR",
            help="A run folder, if there is no --preset; and the model's base folder, which gets a new version.",
        ),
    ],
    preset: PresetName = None,
    *,
    search: SearchOptions,
    precision: Annotated[
        str,
        typer.Option(
            help="float32 runs well everywhere, bfloat16 on CPUs with AVX512-BF16 or AMX, int8 on those with VNNI. "
            "CTranslate2 has float32, float16, int16 and int8, safetensors float32.",
            rich_help_panel="Format",
            autocompletion=lambda: list(
                dict.fromkeys(name for one in EXPORT_FORMATS.values() for name in one.precisions)
            ),
        ),
    ] = "float32",
    variant: Annotated[
        str,
        typer.Option(
            help="portable runs everywhere. xla (float32 only) is compiled where it runs; a server must allow that.",
            autocompletion=lambda: list(VARIANTS),
            rich_help_panel="SavedModel",
        ),
    ] = "portable",
    signature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"A further signature beside serving_default: {', '.join(MORE_SIGNATURES)}. May be repeated.",
            autocompletion=lambda: list(MORE_SIGNATURES),
            rich_help_panel="SavedModel",
        ),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(EXPORT_FORMATS)}. Other formats than saved_model make DIR itself, without versions; "
            "safetensors is for Hugging Face's transformers.",
            autocompletion=lambda: list(EXPORT_FORMATS),
            rich_help_panel="Format",
        ),
    ] = "saved_model",
    server_version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="The version of TensorFlow Serving that will run it, such as 2.17: refuse what would not load there.",
            rich_help_panel="SavedModel",
        ),
    ] = None,
) -> None:
    """Write DIR/<version>/, a SavedModel for TensorFlow Serving: strings in, strings out. Or DIR in another format.

    The export has a fixed search: from the options, from the recipe, or else from the run folder or preset.
    """
    run, directory = _choose_folders(folders, preset)
    run.check()
    chosen_format = check_format(format, precision)
    if chosen_format.needs_answers:
        check_answers(run)
    options: dict[str, Any] = {}
    if chosen_format.is_served:
        check_export_path(directory)
        check_kind(precision, variant)
        check_signatures(signature or [], variant)
        if server_version is not None:
            check_server(server_version, precision)
        options = {
            "variant": variant,
            "server_version": server_version,
            "signatures": tuple(dict.fromkeys(signature or ())),
        }
    else:
        _check_plain(format, directory, variant, signature, server_version)
    decoding = choose_decoding(run, search)

    start_tensorflow()
    from kformer.export.target import export as export_in
    from kformer.tasks import task_of_run

    with status(f"loading {run.path}"):
        predictor = task_of_run(run).load_for_export(run.path, decoding)
    with status(f"exporting to {directory}"):
        target = pkgutil.resolve_name(chosen_format.target)(precision=precision, **options)
        path = export_in(predictor, directory, target)
    print(path)


def _check_plain(
    format: str, directory: Path, variant: str, signature: list[str] | None, server_version: str | None
) -> None:
    """Refuses options of a SavedModel in another format, and a folder that exists."""
    if variant != VARIANTS[0] or signature or server_version is not None:
        raise ValueError(
            f"--variant, --signature and --server-version are for the format saved_model. Received: --format {format}. "
            "Leave them out."
        )
    check_new_folder(directory)


def _choose_folders(folders: list[Path], preset: str | None) -> tuple[RunFolder, Path]:
    """The model's folder, and the base folder of its versions."""
    *run, directory = folders
    if len(run) > 1:
        raise ValueError(f"export needs RUN and DIR. Received: {len(folders)} folders.")
    if not run and preset is None:
        raise ValueError(
            f"export needs two folders, RUN and DIR, or --preset NAME and DIR. Received: only {directory}. "
            "For example: kformer export runs/mine exported/mine"
        )
    if RunFolder(directory).exists():
        raise ValueError(f"{directory} is a run folder. Name another folder for the exported versions.")
    return RunFolder(choose_model(run[0] if run else None, preset)), directory
