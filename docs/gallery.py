"""Draws every picture of `kformer.visualization` for the gallery of the documentation.

python docs/gallery.py FOLDER     # writes FOLDER/gallery.md and FOLDER/gallery/*.png and *.html
"""

import inspect
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import kformer
from kformer import visualization as v
from kformer.data import load_corpus
from kformer.data.corpus import references
from kformer.evaluation import Comparison

VERSE = "They found the stone rolled away from the tomb."
ANIMAL = "The animal didn't cross the street because it was too tired."
WORDS = 400  # of the confusion
VERSES = 100  # of the comparison
HEAD = """# Gallery

Every picture of `kformer.visualization`, with the call that made it. Each function returns a Matplotlib figure;
`kformer plot` writes such pictures from the command line. `pip install '.[plots]'` brings Matplotlib.

The calls below begin with:

```python
import kformer
from kformer import visualization as v

translator = kformer.Translator.from_preset("bible-en-es")
attention = translator.attention("{verse}")
```
"""


class Picture(NamedTuple):
    """A picture and the call that is shown beside it."""

    function: Callable[..., Any]
    call: str
    draw: Callable[[], Any]


def pictures() -> Iterator[Picture]:
    translator = kformer.Translator.from_preset("bible-en-es")
    attention = translator.attention(VERSE)
    animal = translator.attention(ANIMAL)
    tree = translator.beam_tree("You are witnesses of these things.")
    yield Picture(v.plot_attention, "v.plot_attention(attention.cross)", lambda: v.plot_attention(attention.cross))
    yield Picture(
        v.plot_attention_heads,
        "v.plot_attention_heads(attention.cross)",
        lambda: v.plot_attention_heads(attention.cross),
    )
    yield Picture(
        v.plot_attention_links,
        f'animal = translator.attention("{ANIMAL}")\nv.plot_attention_links(animal.encoder, "it", layer=0)',
        lambda: v.plot_attention_links(animal.encoder, "it", layer=0),
    )
    yield Picture(v.plot_alignment, "v.plot_alignment(attention.cross)", lambda: v.plot_alignment(attention.cross))
    yield Picture(v.AttentionView, "v.AttentionView(*attention)", lambda: v.AttentionView(*attention))
    yield Picture(
        v.plot_beam,
        'v.plot_beam(translator.beam_tree("You are witnesses of these things."))',
        lambda: v.plot_beam(tree),
    )
    yield Picture(v.plot_length_penalties, "v.plot_length_penalties()", v.plot_length_penalties)
    yield Picture(v.plot_temperatures, "v.plot_temperatures()", v.plot_temperatures)
    yield Picture(v.plot_positions, "v.plot_positions(length=64, d_model=128)", v.plot_positions)
    yield Picture(
        v.plot_position_products, "v.plot_position_products(length=64, d_model=128)", v.plot_position_products
    )
    yield Picture(v.plot_wavelengths, "v.plot_wavelengths(512)", v.plot_wavelengths)
    yield Picture(v.plot_masks, "v.plot_masks(length=8, padding=2)", v.plot_masks)
    yield Picture(v.plot_schedules, "v.plot_schedules()", v.plot_schedules)
    yield Picture(v.plot_smoothed_labels, "v.plot_smoothed_labels()", v.plot_smoothed_labels)
    yield Picture(
        v.plot_runs,
        'v.plot_runs({"one": log, "another": other})    # or the paths of run folders',
        lambda: v.plot_runs({"one": example_log(1.0), "another": example_log(0.6)}),
    )
    yield Picture(v.plot_confusion, "v.plot_confusion(references, translations)", confusion)
    yield Picture(
        v.plot_comparison,
        "v.plot_comparison(kformer.evaluation.Comparison(sources, references, "
        '{"greedy": translations, "beam 4": others}))',
        comparison,
    )


def example_log(rate: float) -> dict[str, list[float]]:
    """Invented numbers that look like those of a run, to show what the axes are."""
    steps = np.arange(200, 4001, 200)
    loss = 1.5 + 4.5 * np.exp(-rate * steps / 1200)
    return {"step": steps.tolist(), "loss": loss.tolist(), "val_loss": (loss + 0.1 + steps / 30000).tolist()}


def confusion() -> Any:
    """The phonemes of the preset cmudict, on words of its test part."""
    right = references(load_corpus("cmudict").test)
    words = [*right][:WORDS]
    given = kformer.Translator.from_preset("cmudict", kformer.DecodingConfig(beam_size=1))(words)
    return v.plot_confusion([right[word][0] for word in words], given)


def comparison() -> Any:
    """Two searches of the preset bible-en-es, on verses of its test part."""
    sources, targets = zip(*load_corpus("bible-en-es").test[:VERSES], strict=True)
    made = {
        name: kformer.Translator.from_preset("bible-en-es", search)(list(sources))
        for name, search in (("greedy", kformer.DecodingConfig(beam_size=1)), ("beam 4", None))
    }
    return v.plot_comparison(Comparison(sources, [[target] for target in targets], made))


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    (folder / "gallery").mkdir(parents=True, exist_ok=True)
    page = [HEAD.format(verse=VERSE)]
    drawn = set()
    for picture in pictures():
        name = picture.function.__name__
        drawn.add(name)
        summary = inspect.getdoc(picture.function).split("\n\n")[0].replace("\n", " ")
        made = picture.draw()
        if isinstance(made, v.AttentionView):
            made.save(folder / "gallery" / f"{name}.html")
            shown = (
                f'<iframe src="gallery/{name}.html" title="{name}" style="width:100%;height:34rem;border:0"></iframe>'
            )
        else:
            made.savefig(folder / "gallery" / f"{name}.png", dpi=110)
            shown = f"![{summary}](gallery/{name}.png)"
        page.append(f"## {name}\n\n{summary}\n\n```python\n{picture.call}\n```\n\n{shown}\n")
    missing = {name for name in v.__all__ if name.startswith("plot_")} - drawn
    if missing:
        sys.exit(f"The gallery lacks {', '.join(sorted(missing))}.")
    (folder / "gallery.md").write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()
