"""What the small language models of `make_gpt2.py` and `make_llama.py` have in common."""

import make_example
import torch
import transformers

NEW_TOKENS = 20


def verses() -> list[str]:
    """Texts to learn a vocabulary from."""
    from kformer.data import load_corpus

    return [text for pair in load_corpus("bible-en-es").train for text in pair][::10]


# Lines at which tokenizers differ.
ODD_LINES = (
    ["two  blanks", " a blank before", "behind ", "three   blanks   ", "a tab\tand\t\ttwo", "lines\n\n break\n"]
    + ["don't can't we'll they've I'm he'd 'tis", "  's  't", "DON'T", "x = 3.14159 * 10^12", "１２ ½ x² Ⅷ"]
    + [
        "naïve café",
        "e\u0301\u0302",
        "😀👍🏽 👨‍👩‍👧",
        "你好，世界 3个",
        "مرحبا بالعالم",
        "नमस्ते",
        "Ωμέγα",
        "привет, мир",
    ]
    + ["\u00a0no\u00a0\u00a0break", "\u2003em \u3000wide", "a\r\nb", "\ufeffmark", "<b>html</b>", "aaaaaaa aa", "...!?"]
)


def vary(model: transformers.PreTrainedModel) -> None:
    """Changes what begins as ones and zeros, so that no tensor could be left out unnoticed. And more texts end."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
        model.lm_head.weight[model.config.eos_token_id] *= 2.5


def answers(
    model: transformers.PreTrainedModel, tokenizer: transformers.PreTrainedTokenizerBase, unused: list[int]
) -> dict:
    """Ids, logits, log probabilities and continuations.

    `unused` are ids that no text has. A trained model never predicts them; this one might, so they are suppressed.
    """
    lines = [*ODD_LINES, *make_example.lines()][: make_example.LINES]
    ids = [tokenizer(line)["input_ids"] for line in lines]
    expected = {"lines": lines, "ids": ids, "decoded": [tokenizer.decode(row, skip_special_tokens=True) for row in ids]}
    with torch.no_grad():
        rows = ids[-make_example.LOGIT_ROWS :]
        expected["logits"] = [
            make_example.sample_logits(model(torch.tensor([row[:6]])).logits.numpy()[0]) for row in rows
        ]
        expected["log_probabilities"] = [_log_probability(model, row) for row in ids]
    prompts = [line[: 5 + number % 30] for number, line in enumerate(lines)]
    expected["prompts"] = prompts
    tokenizer.pad_token, tokenizer.padding_side = tokenizer.eos_token, "left"
    encoded = tokenizer(prompts, return_tensors="pt", padding=True)
    for name, beams in (("greedy", 1), ("beam", 4)):
        result = model.generate(
            **encoded,
            num_beams=beams,
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            suppress_tokens=unused,
            pad_token_id=tokenizer.eos_token_id,
            return_dict_in_generate=True,
            output_scores=True,
        )
        # The padding behind an end is the end, too.
        expected[name] = result.sequences[:, encoded.input_ids.shape[1] :].tolist()
        if beams > 1:
            expected[f"{name}_scores"] = [round(score, 5) for score in result.sequences_scores.tolist()]
    return expected


def _log_probability(model: transformers.PreTrainedModel, ids: list[int]) -> float:
    """Of all tokens after the first one, and of the end, by the loss that transformers computes."""
    row = torch.tensor([[*ids, model.config.eos_token_id]])[:, : model.config.max_position_embeddings]
    return round(-model(row, labels=row).loss.item() * (row.shape[1] - 1), 4)
