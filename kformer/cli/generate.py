"""`kformer generate`."""

from typing import Annotated

import typer

from kformer.cli.lines import InputFile, OutputFile, answer_lines, check_files, number_of_lines
from kformer.cli.options import (
    BeamSize,
    LengthPenalty,
    ModelArgument,
    Path,
    PresetName,
    choose_decoding,
    choose_model,
)
from kformer.cli.progress import status
from kformer.config import DecodingConfig
from kformer.inference.find import check_search, check_task, find_model
from kformer.translation.batches import TranslateBatch


def generate(
    model: ModelArgument = None,
    preset: PresetName = None,
    input: InputFile = None,
    output: OutputFile = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Above 0, draw tokens at random: 1 as the model says, less is more likely.")
    ] = 0.0,
    top_k: Annotated[int, typer.Option(min=0, help="Draw only from the k most probable tokens; 0: from all.")] = 0,
    top_p: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Draw only from the tokens that together have this probability.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed draws the same tokens.")] = 0,
    max_length: Annotated[
        int, typer.Option(min=0, help="Largest number of new tokens; 0: the model's own limit, mostly 50.")
    ] = 0,
) -> None:
    """Go on with each line, by the search of the model or at random. An empty line begins a new text."""
    check_files(input, output)
    path = choose_model(model, preset)
    found = find_model(path)
    check_task(found, "language-model")
    decoding = choose_decoding(found, None, beam_size, length_penalty)
    check_search(found, decoding)
    options = {
        "max_length": max_length,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }
    number = number_of_lines(input)
    with status(f"loading {path}"):
        function = _load(path, decoding, options, length_penalty)
    answer_lines(function, input, output, 1, number, doing="generating")


def _load(
    path: Path, decoding: DecodingConfig | None, options: dict[str, float | int], length_penalty: float | None
) -> TranslateBatch:
    """The model's own search, or the same with options if one is given."""
    from kformer.inference.load import load_generator, load_model

    if not (options["temperature"] or options["max_length"]):
        return load_model(path, decoding, task="language-model")
    penalty = (decoding or DecodingConfig()).length_penalty
    return load_generator(path, decoding, {**options, "length_penalty": penalty})
