"""`kformer import`."""

from typing import Annotated

import typer

from kformer.cli.options import Path, Samples, read_samples
from kformer.cli.progress import status
from kformer.cli.startup import start_tensorflow
from kformer.files.writing import check_new_folder
from kformer.importing.formats import IMPORT_FORMATS, choose_format
from kformer.importing.languages import Languages, check_languages
from kformer.process.memory import start_without_onednn


def import_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model's folder of another toolkit.")],
    output: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder to make.")],
    format: Annotated[
        str | None,
        typer.Option(
            help=f"What FOLDER holds, if it does not say so itself: {', '.join(IMPORT_FORMATS)}.",
            autocompletion=lambda: list(IMPORT_FORMATS),
        ),
    ] = None,
    source_language: Annotated[
        str | None,
        typer.Option(help="Code of the language of texts, if the model knows many: as in the files of its tokenizer."),
    ] = None,
    target_language: Annotated[str | None, typer.Option(help="Code of the language of translations.")] = None,
    samples: Samples = None,
) -> None:
    """Make a run folder of a model that another toolkit has trained: see docs/importing.md.

    FOLDER is only read, and no code in it is run. It must be here: nothing is downloaded.
    """
    chosen = choose_format(folder, format)
    languages = Languages(source_language, target_language)
    check_languages(chosen, languages)
    check_new_folder(output)
    lines = read_samples(samples)

    start_without_onednn()
    start_tensorflow()
    from kformer.importing.run import import_model

    with status(f"importing {folder}"):
        run = import_model(folder, output, chosen.name, languages, lines)
    config = run.transformer_config()
    print(f"{run.path}: {chosen.name}, a model of the task {config.task}")
