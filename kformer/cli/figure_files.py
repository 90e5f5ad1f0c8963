"""Pictures in files: .png, .svg or a page."""

import html
import importlib.util
import io
from typing import TYPE_CHECKING

from kformer.cli.options import Path
from kformer.files.writing import check_file_path, replacing, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".html")
DOTS_PER_INCH = 150


def checked_figure(output: Path | None, name: str, option: str = "--output") -> Path:
    """The file to write, by default one in this folder."""
    output = Path(f"{name}.png") if output is None else output
    if output.suffix not in SUFFIXES:
        raise ValueError(f"{option} must end with one of {', '.join(SUFFIXES)}. Received: {output}.")
    check_file_path(output)
    if importlib.util.find_spec("matplotlib") is None:
        raise ModuleNotFoundError("A picture needs Matplotlib: pip install 'kformer[plots]'.")
    return output


def write_figure(figure: "Figure", output: Path) -> None:
    """Writes a figure, whole or not at all, and prints the path. Text in an SVG stays text, for the browser's fonts."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        if output.suffix == ".html":
            drawn = io.StringIO()
            figure.savefig(drawn, format="svg")
            write_text(output, _page(drawn.getvalue(), output.stem))
        else:
            with replacing(output) as partial:
                figure.savefig(partial, dpi=DOTS_PER_INCH)
    print(output)


def _page(svg: str, title: str) -> str:
    drawing = svg[svg.index("<svg") :]
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n'
        f"<style>svg {{ max-width: 100%; height: auto }}</style>\n{drawing}</html>\n"
    )
