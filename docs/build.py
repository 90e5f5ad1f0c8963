"""Builds the documentation: pages, gallery, executed notebooks, the reference, as a site that needs no network.

python docs/build.py [--skip-notebooks]     # writes build/docs/site/index.html
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import fields
import jupytext
import latex2mathml.converter
import nbconvert
import nbformat
from nbclient import NotebookClient

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = ROOT / "build" / "docs" / "source"
# The pages of the reference: a title and the modules whose public names it lists.
REFERENCE = {
    "kformer": (
        "Main classes and functions",
        ["kformer.config", "kformer.tasks.translator", "kformer.training.train"],
    ),
    "layers": ("Layers", ["kformer.layers"]),
    "models": ("Models", ["kformer.models"]),
    "training": (
        "Losses, metrics, schedules, training",
        [
            *("kformer.losses", "kformer.metrics", "kformer.schedules", "kformer.training.optimizers"),
            *("kformer.training.averaging", "kformer.training.callbacks"),
        ],
    ),
    "tasks": ("Tasks", ["kformer.tasks.classify", "kformer.tasks.tag", "kformer.tasks.language_model",
                        "kformer.tasks.masked_language_model", "kformer.tasks.base", "kformer.tasks.predictor"]),
    "data": ("Data", ["kformer.data.corpus", "kformer.data.pairs", "kformer.data.sources.registry",
                      "kformer.data.sources.tsv", "kformer.data.sources.parallel", "kformer.data.sources.plain_text",
                      "kformer.data.sources.verses",
                      "kformer.data.arrangements", "kformer.data.batching",
                      "kformer.data.encoding", "kformer.data.dataset"]),
    "tokenizers": ("Tokenizers", ["kformer.tokenizers"]),
    "decoding": ("Decoding", ["kformer.decoding"]),
    "presets": ("Presets and runs", ["kformer.presets", "kformer.runs.folder"]),
    "export": ("Export", ["kformer.export.saved_model", "kformer.export.target", "kformer.export.lint",
                          "kformer.export.safetensors"]),
    "inference": ("Inference", ["kformer.inference.model", "kformer.inference.columns", "kformer.inference.ray",
                                "kformer.inference.beam", "kformer.inference.spark", "kformer.runtime.c_api",
                                "kformer.text.batches"]),
    "evaluation": ("Evaluation", ["kformer.evaluation.metrics", "kformer.evaluation.evaluate"]),
    "serving": ("Serving", ["kformer.serving"]),
    "visualization": ("Visualization", ["kformer.visualization"]),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip-notebooks", action="store_true", help="Leave the notebooks out: they take minutes.")
    arguments = parser.parse_args()
    shutil.rmtree(SOURCE.parent, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    for path in ROOT.glob("docs/*"):
        if path.suffix == ".md":
            (SOURCE / path.name).write_text(site_links(path.read_text(encoding="utf-8")), encoding="utf-8")
        elif path.suffix in (".css", ".js", ".png"):
            shutil.copy(path, SOURCE)
    shutil.copytree(ROOT / "kformer" / "recipes", SOURCE / "recipes", ignore=shutil.ignore_patterns("*.py", "__*"))
    (SOURCE / "fields.md").write_text(fields.page(), encoding="utf-8")
    write_reference()
    subprocess.run([sys.executable, ROOT / "docs" / "gallery.py", SOURCE], check=True)
    for script in sorted(ROOT.glob("notebooks/*.py")):
        write_notebook(script, execute=not arguments.skip_notebooks)
    # Warnings are errors: a link that leads nowhere, a name that the reference does not find.
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "--config-file",
        ROOT / "docs" / "mkdocs.yml",
    ]
    # Without this, the theme prints that it has a successor.
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    print(ROOT / "build" / "docs" / "site" / "index.html")


def site_links(text: str) -> str:
    """Links to notebooks, recipes and modules of the repository, as links to what the site has of them."""
    text = text.replace("](../kformer/recipes/", "](recipes/").replace("](../kformer/config)", "](fields.md)")
    text = re.sub(r"\]\(\.\./notebooks/(\w+)\.ipynb\)", r"](notebooks/\1.md)", text)
    for name, (_, modules) in REFERENCE.items():
        for module in modules:
            text = text.replace(f"](../{module.replace('.', '/')})", f"](reference/{name}.md)")
    return text


def write_reference() -> None:
    folder = SOURCE / "reference"
    folder.mkdir()
    for name, (title, modules) in REFERENCE.items():
        entries = "\n\n".join(f"::: {module}" for module in modules)
        (folder / f"{name}.md").write_text(f"# {title}\n\n{entries}\n", encoding="utf-8")


def write_notebook(script: pathlib.Path, execute: bool) -> None:
    """The notebook as a page, with its pictures as files beside it."""
    folder = SOURCE / "notebooks"
    folder.mkdir(exist_ok=True)
    notebook = jupytext.read(script)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    installs = [cell for cell in notebook.cells if "install" in cell.metadata.get("tags", ())]
    if execute:
        notebook.cells = [cell for cell in notebook.cells if cell not in installs]
        for cell in notebook.cells:
            if "%tensorboard" in cell.source:  # it would show this machine's files, and run on after the notebook
                cell.metadata["tags"] = ["skip-execution"]
                cell.outputs = [nbformat.v4.new_output("stream", text="(In the notebook, TensorBoard appears here.)\n")]
        output = ROOT / "build" / "docs" / "runs" / script.stem
        output.mkdir(parents=True)
        os.environ["KFORMER_NOTEBOOK_OUTPUT"] = str(output)
        started = time.monotonic()
        NotebookClient(notebook, timeout=3600, resources={"metadata": {"path": str(output)}}).execute()
        # What the first cell of the notebook says of its time comes from here.
        print(f"{script.name}: {(time.monotonic() - started) / 60:.1f} minutes", flush=True)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = with_formulas(cell.source)
        else:
            cell.outputs = tidy(cell.outputs)
    exporter = nbconvert.MarkdownExporter()
    text, resources = exporter.from_notebook_node(
        notebook, {"unique_key": script.stem, "output_files_dir": script.stem}
    )
    for name, data in resources["outputs"].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / f"{script.stem}.md").write_text(re.sub(r"\n{4,}", "\n\n\n", text), encoding="utf-8")


def tidy(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The outputs of a cell with all text in one block: what it prints, and the value of its last expression."""
    tidied: list[nbformat.NotebookNode] = []
    for output in outputs:
        data = output.get("data", {})
        if data.keys() == {"text/plain"} or data.get("text/html", "").startswith("<pre"):  # what rich prints
            output = nbformat.v4.new_output("stream", text=data["text/plain"].rstrip("\n") + "\n")
        if output.output_type == "stream" and tidied and tidied[-1].output_type == "stream":
            tidied[-1].text += output.text
        else:
            tidied.append(output)
    return tidied


def with_formulas(text: str) -> str:
    """LaTeX between dollar signs as MathML, which browsers show without a script."""

    def converted(match: re.Match[str]) -> str:
        if match[1] is not None:
            return latex2mathml.converter.convert(match[1], display="block")
        # The span keeps a formula that begins a line within its paragraph.
        return f"<span>{latex2mathml.converter.convert(match[2], display='inline')}</span>"

    return re.sub(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", converted, text, flags=re.DOTALL)


if __name__ == "__main__":
    main()
