"""`kformer generate`."""

from collections.abc import Callable
from typing import Annotated

import typer

from kformer.cli.lines import InputFile, OutputFile, answer_lines, check_files, number_of_lines
from kformer.cli.on_server import ServerUrl, TokenFile, check_server_options, connected
from kformer.cli.options import (
    BeamSize,
    LanguageModelPreset,
    MaxSourceLength,
    ModelArgument,
    Path,
    Trust,
    choose_decoding,
    choose_model,
)
from kformer.cli.progress import status
from kformer.client import Client
from kformer.client.batches import REQUESTS_AT_ONCE, answer_batch, generate_batch
from kformer.config import DecodingConfig
from kformer.inference.find import check_search, check_task, find_model, reads_symbols
from kformer.inference.lines import UnknownLines
from kformer.text.batches import TranslateBatch

_LARGEST = 2**31 - 1  # an int32
_LARGEST_PENALTY = 10.0  # with options: see `kformer.text.options`


def generate(
    model: ModelArgument = None,
    preset: LanguageModelPreset = None,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    input: InputFile = None,
    output: OutputFile = None,
    beam_size: BeamSize = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Exponent of the length penalty, which counts the prompt's tokens, too; larger gives longer texts. By "
            "default the model's own.",
            rich_help_panel="Search",
        ),
    ] = None,
    max_source_length: MaxSourceLength = None,
    temperature: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1e6,
            help="Above 0, draw tokens at random: 1 as the model says, less is more likely.",
            rich_help_panel="Sampling",
        ),
    ] = 0.0,
    top_k: Annotated[
        int,
        typer.Option(
            min=0,
            max=_LARGEST,
            help="Draw only from the k most probable tokens; 0: from all.",
            rich_help_panel="Sampling",
        ),
    ] = 0,
    top_p: Annotated[
        float,
        typer.Option(
            min=1e-6,
            max=1.0,
            help="Draw only from the tokens that together have this probability.",
            rich_help_panel="Sampling",
        ),
    ] = 1.0,
    seed: Annotated[
        int,
        typer.Option(
            help="The same seed draws the same texts for the same lines of a file.", rich_help_panel="Sampling"
        ),
    ] = 0,
    max_length: Annotated[
        int,
        typer.Option(
            min=0,
            max=_LARGEST,
            help="Largest number of new tokens; 0: the model's own limit.",
            rich_help_panel="Search",
        ),
    ] = 0,
    trust: Trust = False,
) -> None:
    """Go on with each line, by the search of the model or at random. An empty line begins a new text."""
    check_files(input, output)
    search = {
        "--beam-size": beam_size,
        "--length-penalty": length_penalty,
        "--max-source-length": max_source_length,
    }
    check_server_options(server, token_file, (model, preset), search, trust)
    options = {
        "max_length": max_length,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }
    _check_options(options, length_penalty)
    number = number_of_lines(input)
    one_by_one = 1 if temperature else None  # batches in their order, because each has its own seed
    if server is not None:
        with connected(server, token_file) as client:
            function = _of_server(client, options)
            at_once = one_by_one or REQUESTS_AT_ONCE
            answer_lines(function, input, output, 1, number, client.batch_size, at_once, doing="generating")
        return
    path = choose_model(model, preset)
    found = find_model(path)
    check_task(found, "language-model")
    decoding = choose_decoding(found, None, beam_size, length_penalty, max_source_length)
    check_search(found, decoding)
    unknown = UnknownLines(reads_symbols(found))
    with status(f"loading {path}"):
        function = _load(path, decoding, options, unknown.note, trust)
    answer_lines(function, input, output, 1, number, at_once=one_by_one, doing="generating", unknown=unknown)


def _load(
    path: Path,
    decoding: DecodingConfig | None,
    options: dict[str, float | int],
    on_unknown: Callable[[bytes], None],
    trust: bool,
) -> TranslateBatch:
    """The model's own search, or the same with options if one is given."""
    from kformer.inference.load import load_generator, load_model

    if not _are_given(options):
        return load_model(path, decoding, task="language-model", on_unknown=on_unknown, trust=trust)
    return load_generator(path, decoding, options, on_unknown, trust)


def _of_server(client: Client, options: dict[str, float | int]) -> TranslateBatch:
    """As `_load`, for a model on a server: its own search, or the same with options if one is given."""
    if not _are_given(options):
        return answer_batch(client, task="language-model")
    return generate_batch(client, options)


def _check_options(options: dict[str, float | int], length_penalty: float | None) -> None:
    """Refuses options that do not go together, or that no model takes."""
    if not -(2**63) <= options["seed"] < 2**63:
        raise ValueError(f"--seed must be from -2**63 to 2**63 - 1. Received: {options['seed']}.")
    if not options["temperature"] and (options["top_k"], options["top_p"], options["seed"]) != (0, 1.0, 0):
        raise ValueError(
            "--top-k, --top-p and --seed are for tokens that are drawn at random. Give --temperature, too, such as "
            "--temperature 1, or leave them out."
        )
    if _are_given(options) and (length_penalty or 0.0) > _LARGEST_PENALTY:
        raise ValueError(
            f"With --temperature or --max-length, --length-penalty must be at most {_LARGEST_PENALTY}. Received: "
            f"{length_penalty}."
        )


def _are_given(options: dict[str, float | int]) -> bool:
    """Whether the search is another one than the model's own."""
    return bool(options["temperature"] or options["max_length"])
