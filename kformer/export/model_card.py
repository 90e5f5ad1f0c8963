"""The model card of an export: what the model is, what it was trained on, how good it is, and how it was exported."""

import json
import pathlib
from typing import Any

from kformer.files.writing import write_json, write_text
from kformer.runs.environment import describe_environment
from kformer.tasks.predictor import Predictor

CARD_FILE = "assets.extra/model_card.json"
READABLE_CARD_FILE = "assets.extra/MODEL_CARD.md"
_UNKNOWN = "not known"


def write_card(saved_model: pathlib.Path, predictor: Predictor, export: dict[str, Any]) -> None:
    """Writes `model_card.json` and, of the same facts, `MODEL_CARD.md`.

    Args:
        saved_model: The folder of the version.
        predictor: What was exported; `predictor.facts` tells what is known of it.
        export: How it was exported.
    """
    card = model_card(predictor, export)
    write_json(saved_model / CARD_FILE, card)
    write_text(saved_model / READABLE_CARD_FILE, _readable(card))


def model_card(predictor: Predictor, export: dict[str, Any]) -> dict[str, Any]:
    """The card's facts. What is not known, such as the scores of a model that was not evaluated, is None."""
    facts = predictor.facts
    return {
        "task": predictor.task,
        "description": facts.get("description"),
        "licence": facts.get("licence"),
        "provenance": facts.get("provenance"),
        "scores": facts.get("scores"),
        "corpus": facts.get("corpus"),
        "trained_with": facts.get("environment"),
        "parameters": predictor.model.count_params(),
        "model": predictor.config.to_dict(),
        "search": predictor.decoding.to_dict(),
        "export": export,
        "exported_with": describe_environment(),
    }


def _readable(card: dict[str, Any]) -> str:
    """The card in Markdown."""
    title = card["description"] or f"A Transformer for the task {card['task']}"
    lines = [f"# {title}", "", f"Licence: {card['licence'] or _UNKNOWN}. {card['parameters']:,} parameters.", ""]
    if card["provenance"]:
        lines += [card["provenance"], ""]
    sections = {
        "Scores": "scores",
        "Corpus": "corpus",
        "Model": "model",
        "Search": "search",
        "Export": "export",
        "Trained with": "trained_with",
        "Exported with": "exported_with",
    }
    for heading, key in sections.items():
        lines += [f"## {heading}", "", *_table(card[key]), ""]
    return "\n".join(lines)


def _table(facts: dict[str, Any] | None) -> list[str]:
    if not facts:
        return [f"{_UNKNOWN[0].upper()}{_UNKNOWN[1:]}."]
    rows = [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
    return ["| | |", "| --- | --- |", *rows]


def _cell(value: Any) -> str:
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return written.replace("|", "\\|").replace("\n", " ")
