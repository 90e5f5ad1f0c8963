"""What a model of transformers from sources to targets says."""

import make_example
import numpy as np
import torch
import transformers


def favour_end(model: transformers.PreTrainedModel, vector: torch.Tensor, strength: float) -> None:
    """Adds to a vector that all outputs contain, so that random texts end before their largest length."""
    end = model.get_output_embeddings().weight.data[model.config.eos_token_id]
    vector.data += strength * end / end.square().sum()


def heed_source(model: transformers.PreTrainedModel) -> None:
    """Enlarges what the decoder takes from the encoder, so that the answers to different lines differ."""
    for layer in model.model.decoder.layers:
        layer.encoder_attn.out_proj.weight.data *= 10


def answers(
    model: transformers.PreTrainedModel,
    tokenizer: transformers.PreTrainedTokenizerBase,
    lines: list[str],
    **options: object,
) -> dict:
    """Ids, logits of random targets, and the texts of two searches. `options` are those of the tokenizer's call."""
    encoded = tokenizer(lines, return_tensors="pt", padding=True, **options)
    sources, mask = encoded.input_ids, encoded.attention_mask
    rows, length = make_example.LOGIT_ROWS, make_example.LOGIT_POSITIONS
    size = model.get_output_embeddings().weight.shape[0]
    target = np.random.default_rng(0).integers(4, size - 1, (rows, length))
    start = np.full((rows, 1), model.config.decoder_start_token_id)
    target_in = np.concatenate([start, target], axis=1)
    with torch.no_grad():
        logits = model(
            input_ids=sources[:rows], attention_mask=mask[:rows], decoder_input_ids=torch.from_numpy(target_in)
        ).logits.numpy()
        found = {}
        for name, beams in (("greedy", 1), ("beam", 4)):
            result = model.generate(
                input_ids=sources,
                attention_mask=mask,
                num_beams=beams,
                return_dict_in_generate=True,
                output_scores=True,
            )
            texts = tokenizer.batch_decode(result.sequences, skip_special_tokens=True)
            found[name] = [text.strip(" \t\n\f\r") for text in texts]  # kformer writes no white space at the ends
            if beams > 1:
                found[f"{name}_scores"] = np.round(result.sequences_scores.numpy(), 5).tolist()
    ids = [row[kept].tolist() for row, kept in zip(sources, mask.bool(), strict=True)]
    logits = make_example.sample_logits(logits)
    return {"lines": lines, "ids": ids, "target_in": target_in.tolist(), "logits": logits, **found}
