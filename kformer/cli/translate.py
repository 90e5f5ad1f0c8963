"""`kformer translate`."""

from typing import Annotated

import typer

from kformer.cli.lines import InputFile, OutputFile, answer_lines, check_files, number_of_lines
from kformer.cli.on_server import ServerUrl, TokenFile, check_server_options, connected
from kformer.cli.options import (
    BeamSize,
    LengthPenalty,
    MaxSourceLength,
    ModelArgument,
    SearchRecipe,
    TranslatorPreset,
    Trust,
    choose_decoding,
    choose_model,
)
from kformer.cli.progress import status
from kformer.client.batches import REQUESTS_AT_ONCE, answer_batch
from kformer.inference.find import check_search, find_model, reads_symbols, short_ratio
from kformer.inference.lines import ShortTranslations, UnknownLines
from kformer.recipes import load_recipe
from kformer.wording import count


def translate(
    model: ModelArgument = None,
    preset: TranslatorPreset = None,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    input: InputFile = None,
    output: OutputFile = None,
    recipe: SearchRecipe = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    max_source_length: MaxSourceLength = None,
    n_best: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of hypotheses per line, each as `number ||| translation ||| score`.",
            rich_help_panel="Search",
        ),
    ] = 1,
    trust: Trust = False,
) -> None:
    """Translate line by line: as many lines out as in, in the same order.

    A recipe says here only how to search: nothing else of it is used.
    """
    check_files(input, output)
    search = {
        "--recipe": recipe,
        "--beam-size": beam_size,
        "--length-penalty": length_penalty,
        "--max-source-length": max_source_length,
    }
    check_server_options(server, token_file, (model, preset), search, trust)
    if server is not None:
        with connected(server, token_file) as client:
            function = answer_batch(client, n_best)
            answer_lines(function, input, output, n_best, number_of_lines(input), client.batch_size, REQUESTS_AT_ONCE)
        return
    path = choose_model(model, preset)
    found = find_model(path)
    chosen = load_recipe(recipe) if recipe is not None else None
    decoding = choose_decoding(found, chosen, beam_size, length_penalty, max_source_length)
    check_search(found, decoding, n_best)

    from kformer.inference.load import load_model, threads_for

    number = number_of_lines(input)
    short, unknown = ShortTranslations(short_ratio(found, decoding)), UnknownLines(reads_symbols(found))
    with status(f"loading {path}"):
        function = load_model(path, decoding, n_best, threads_for(number), on_unknown=unknown.note, trust=trust)
    answer_lines(function, input, output, n_best, number, on_line=short, unknown=unknown)
    _warn_of_short_translations(short)


def _warn_of_short_translations(short: ShortTranslations) -> None:
    if short.count:
        verb = "is" if short.count == 1 else "are"
        typer.echo(
            f"kformer: warning: {count(short.count, 'translation')} {verb} much too short for the line, so that "
            f"something may be missing. The first is that of line {short.first:,}. Shorter lines help, or a smaller "
            "--max-source-length.",
            err=True,
        )
