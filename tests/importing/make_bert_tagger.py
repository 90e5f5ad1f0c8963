"""A small BERT with upper case that gives labels to words."""

import pathlib

import make_bert
import make_example
import torch
import transformers

LABELS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}


def make(folder: pathlib.Path) -> None:
    config = make_bert.write_tokenizer(folder, lowercase=False, id2label=LABELS)
    model = make_bert.random_model(transformers.BertForTokenClassification, config)
    model.save_pretrained(folder)
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    texts = make_example.lines()
    tags = []
    with torch.no_grad():
        for text in texts:
            encoded = tokenizer(text.split(), is_split_into_words=True, return_tensors="pt")
            best = model(**encoded).logits[0].argmax(-1).tolist()
            words = encoded.word_ids(0)
            first = [words.index(number) for number in range(len(text.split()))]
            tags.append(" ".join(config.id2label[best[place]] for place in first))
    lines = make_bert.lines()
    make_example.note(folder, {"lines": lines, "ids": tokenizer(lines).input_ids, "texts": texts, "tags": tags})
