"""An interactive view of attention: one HTML file, which loads no other files."""

import html
import importlib.resources
import json
import pathlib
import string
from collections.abc import Sequence

import numpy as np

from kformer.files.writing import write_text
from kformer.text.attention_maps import AttentionMap
from kformer.visualization.figures import LINES

_DIGITS = 3  # decimals of a weight in the file


class AttentionView:
    """Lines between tokens, interactive: choose a layer and heads, and point at a token. A notebook shows it directly.

    Args:
        maps: From `Translator.attention`, or any `AttentionMap`s.

    Raises:
        ValueError: There is no map.

    Examples:
        >>> view = AttentionView(AttentionMap(np.eye(2), ["la", "casa"], ["the", "house"], name="Alignment"))
        >>> view.save("attention.html")
        >>> all(word in view.html for word in ("Alignment", "casa", "house"))
        True
    """

    def __init__(self, *maps: AttentionMap) -> None:
        if not maps:
            raise ValueError("Pass at least one AttentionMap, such as AttentionView(*translator.attention(text)).")
        self.html = _page(maps)

    def save(self, path: str | pathlib.Path) -> None:
        """Writes the view as a file that any browser shows, without a network."""
        write_text(path, self.html)

    def _repr_html_(self) -> str:
        """The view within a frame, so that the styles of the notebook and of the view do not mix."""
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" title="Attention" '
            'style="width: 100%; height: 40rem; border: 0"></iframe>'
        )


def _page(maps: Sequence[AttentionMap]) -> str:
    data = {
        "colors": LINES,
        "maps": [
            {
                "name": one.name,
                "queries": one.queries,
                "keys": one.keys,
                "weights": np.round(one.weights.astype("float64"), _DIGITS).tolist(),
            }
            for one in maps
        ],
    }
    files = importlib.resources.files(__name__)
    page, style, script = (files.joinpath(f"view.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    # "<" is escaped, because a token "</script>" would end the element of the data.
    written = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    return string.Template(page).substitute(style=style, script=script, data=written)
