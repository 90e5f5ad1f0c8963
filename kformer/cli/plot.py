"""`kformer plot ...`: a picture in a file."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kformer.cli.command_form import App
from kformer.cli.figure_files import checked_figure, write_figure
from kformer.cli.options import BeamSize, LengthPenalty, ModelArgument, Path, TranslatorPreset, Trust, choose_model
from kformer.cli.progress import status
from kformer.cli.startup import start_tensorflow
from kformer.inference.find import find_model
from kformer.runs.folder import RunFolder

if TYPE_CHECKING:
    from kformer.text.attention_maps import AttentionMap

plot = App()
Output = Annotated[
    Path | None,
    typer.Option(help="The file to write: .png, .svg or .html. By default NAME-OF-PICTURE.png."),
]
Text = Annotated[str, typer.Option(help="The sentence that the model reads.")]
Length = Annotated[int, typer.Option(min=1, help="Number of positions.")]
Width = Annotated[int, typer.Option("--d-model", min=2, help="Size of the model, an even number.")]


@plot.callback()
def pictures() -> None:
    """Draw attention, searches, runs and the paper's formulas (needs the extra `plots`)."""


def attention(
    text: Text,
    model: ModelArgument = None,
    preset: TranslatorPreset = None,
    translation: Annotated[
        str | None, typer.Option(help="What the decoder reads; by default the model's own translation.")
    ] = None,
    kind: Annotated[
        Literal["encoder", "decoder", "cross"] | None,
        typer.Option(
            help="Self-attention of the encoder or the decoder, or (the default) attention from target to source."
        ),
    ] = None,
    style: Annotated[
        Literal["map", "heads", "links", "alignment"] | None,
        typer.Option(
            help="One map; a map of every head; lines for every head; or the strongest links. An HTML file has all "
            "kinds, layers and heads to choose from, unless a style is given."
        ),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(help="The layer, from 0; negative numbers count from the last, the default.")
    ] = None,
    head: Annotated[int | None, typer.Option(min=0, help="The head of a map; by default the mean of all.")] = None,
    query: Annotated[str | None, typer.Option(help="For links: draw only the lines of this token.")] = None,
    trust: Trust = False,
    output: Output = None,
) -> None:
    """Which tokens attend to which, while a model reads a sentence and its translation.

    From an export, only the alignment of its signature translate_detailed can be drawn.
    """
    path = checked_figure(output, "attention")
    found = find_model(choose_model(model, preset))
    if head is not None and style not in (None, "map"):
        raise ValueError(f"--head chooses a single map. Received: --style {style}. Leave one of them out.")
    if query is not None and style != "links":
        raise ValueError("--query chooses the token whose lines are drawn. Give it together with --style links.")
    is_page = style is None and path.suffix == ".html"
    if is_page and not kind is layer is head is None:
        raise ValueError(
            "An HTML file has all kinds, layers and heads. Leave out --kind, --layer and --head, or give --style."
        )
    if style == "heads" and layer is not None:
        raise ValueError("--style heads draws every layer. Leave out --layer, or choose another style.")
    layer = -1 if layer is None else layer
    if isinstance(found, RunFolder):
        maps = _attention_of(found, text, translation)
    elif translation is not None:
        raise ValueError(
            f"{found} is an export, which shows attention only for its own translations. Leave out --translation."
        )
    elif kind not in (None, "cross"):
        raise ValueError(
            f"{found} is an export, which returns only its alignment. Leave out --kind, or name the run folder."
        )
    else:
        maps = _alignment_of(found, text, trust)

    from kformer import visualization

    if is_page:
        visualization.AttentionView(*maps.values()).save(path)
        print(path)
        return
    chosen = maps[kind or "cross"]
    if style == "heads":
        figure = visualization.plot_attention_heads(chosen)
    elif style == "links":
        figure = visualization.plot_attention_links(chosen, query, layer)
    elif style == "alignment":
        figure = visualization.plot_alignment(chosen, layer)
    else:
        figure = visualization.plot_attention(chosen, layer, head)
    write_figure(figure, path)


def beam(
    text: Text,
    model: ModelArgument = None,
    preset: TranslatorPreset = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    output: Output = None,
) -> None:
    """The tree of hypotheses that a beam search looks at."""
    path = checked_figure(output, "beam")
    found = find_model(choose_model(model, preset))
    if not isinstance(found, RunFolder):
        raise ValueError(f"{found} is an export, whose search cannot be watched. Name the run folder or a preset.")
    found.check_task("translate")  # before TensorFlow starts; `from_run` checks the rest
    start_tensorflow()
    from kformer import Translator
    from kformer.visualization import plot_beam

    with status("searching"):
        tree = Translator.from_run(found.path).beam_tree(text, beam_size, length_penalty)
    write_figure(plot_beam(tree), path)


def run(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A column of log.csv, without val_; may be given several times."),
    ] = None,
    output: Output = None,
) -> None:
    """Training curves of one run or several."""
    path = checked_figure(output, "run")
    for folder in runs:
        RunFolder(folder).check_described()
    start_tensorflow()
    from kformer.visualization import plot_runs

    write_figure(plot_runs(runs, column), path)


def positions(length: Length = 64, d_model: Width = 128, output: Output = None) -> None:
    """The positional encoding as a heat map."""
    _formula("plot_positions", output, length=length, d_model=d_model)


def products(length: Length = 64, d_model: Width = 128, output: Output = None) -> None:
    """The dot products of positions."""
    _formula("plot_position_products", output, length=length, d_model=d_model)


def wavelengths(d_model: Width = 512, output: Output = None) -> None:
    """The wavelengths of the positional encoding."""
    _formula("plot_wavelengths", output, d_model=d_model)


def masks(
    length: Length = 8,
    padding: Annotated[int, typer.Option(min=0, help="How many of the positions are padding.")] = 2,
    output: Output = None,
) -> None:
    """The masks of attention."""
    _formula("plot_masks", output, length=length, padding=padding)


def schedule(
    steps: Annotated[int, typer.Option(min=1, help="Number of updates.")] = 20000,
    output: Output = None,
) -> None:
    """The learning rate for several widths and warm-ups."""
    _formula("plot_schedules", output, steps=steps)


def labels(
    epsilon: Annotated[float, typer.Option(min=0.0, max=1.0, help="Probability taken from the label.")] = 0.1,
    output: Output = None,
) -> None:
    """Labels with and without smoothing."""
    _formula("plot_smoothed_labels", output, epsilon=epsilon)


def temperatures(output: Output = None) -> None:
    """The softmax at several temperatures."""
    _formula("plot_temperatures", output)


def penalties(output: Output = None) -> None:
    """Scores over length for several length penalties."""
    _formula("plot_length_penalties", output)


plot.add_commands(
    *(attention, beam, run, positions, products, wavelengths, masks, schedule, labels, temperatures, penalties)
)


def _formula(name: str, output: Path | None, **options: Any) -> None:
    """Writes the picture of a function that needs no model."""
    path = checked_figure(output, name.removeprefix("plot_"))
    start_tensorflow()
    from kformer import visualization

    write_figure(getattr(visualization, name)(**options), path)


def _attention_of(run: RunFolder, text: str, translation: str | None) -> "dict[str, AttentionMap]":
    run.check_task("translate")  # before TensorFlow starts; `from_run` checks the rest
    start_tensorflow()
    from kformer import Translator
    from kformer.inference import Model

    with status("reading"):
        if translation is None:  # The kept SavedModel starts faster than a Translator, which first traces its graph.
            translation = Model(run.path)([text.encode()])[0][0].text
        return Translator.from_run(run.path).attention(text, translation)._asdict()


def _alignment_of(saved_model: Path, text: str, trust: bool) -> "dict[str, AttentionMap]":
    import numpy as np

    from kformer.runtime.c_api import SavedModel
    from kformer.text.attention_maps import read_detailed

    with status(f"loading {saved_model}"):
        model = SavedModel(saved_model, trust=trust)
        if "translate_detailed" not in model.signatures:
            raise ValueError(
                f"{saved_model} has no signature translate_detailed. Export it with --signature translate_detailed."
            )
        found = model.run("translate_detailed", {"text": np.array([text.encode()], object)})
    return {"cross": read_detailed(found)}
