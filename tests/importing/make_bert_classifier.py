"""A small BERT that gives labels to texts and pairs of texts, in 16 bits."""

import pathlib

import make_bert
import make_example
import numpy as np
import torch
import transformers

LABELS = {0: "negative", 1: "5 stars", 2: "neutral"}


def make(folder: pathlib.Path) -> None:
    config = make_bert.write_tokenizer(folder, lowercase=True, id2label=LABELS, hidden_act="gelu_new")
    model = make_bert.random_model(transformers.BertForSequenceClassification, config)
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    single = make_example.lines()
    lines = [
        *single[:150],
        *(f"{first}\t{second}" for first, second in zip(single[100:150], single[150:], strict=True)),
    ]
    with torch.no_grad():
        model.classifier.bias -= logits(model, tokenizer, lines).mean(0)  # so that each label is some text's
    model.half().save_pretrained(folder)
    found = torch.softmax(logits(model.float(), tokenizer, lines), 1).numpy()
    probabilities = np.round(found, 6).tolist()
    labels = [config.id2label[int(np.argmax(row))] for row in probabilities]
    make_example.note(folder, {"lines": lines, "labels": labels, "probabilities": probabilities})


def logits(model: torch.nn.Module, tokenizer: transformers.BertTokenizer, lines: list[str]) -> torch.Tensor:
    """The logits of texts, and of pairs of texts with a tab between them."""
    with torch.no_grad():
        return torch.cat([model(**tokenizer(*line.split("\t"), return_tensors="pt")).logits for line in lines])
