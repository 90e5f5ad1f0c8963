"""What the decoder-only models of Hugging Face have in common."""

from kformer.importing.checkpoint import Checkpoint
from kformer.importing.fields import Fields
from kformer.importing.imported_model import Source, same, transposed

_SOFTMAX = "lm_head.weight"


def embeddings(fields: Fields, checkpoint: Checkpoint, name: str, is_tied: bool) -> tuple[str, dict[str, Source]]:
    """The value of `TransformerConfig.embedding_tying`, and the weights of embeddings and softmax.

    The tensors say whether they are one matrix. The configuration counts where the softmax has no tensor.

    Args:
        fields: Of config.json.
        checkpoint: The tensors.
        name: That of the embeddings.
        is_tied: Whether they are one matrix where the configuration does not say so.
    """
    has_softmax = _SOFTMAX in checkpoint
    if has_softmax and checkpoint.are_equal(name, _SOFTMAX):
        # Both are named, because a tensor that nothing names has no place in the model.
        return "target", {"target_embedding/embeddings": Source((name, _SOFTMAX), lambda one, other: one)}
    tying = "target" if not has_softmax and fields.get("tie_word_embeddings", is_tied) else "none"
    return tying, places_of_embeddings(tying, name)


def places_of_embeddings(tying: str, name: str) -> dict[str, Source]:
    """The weights of embeddings and softmax in the files that transformers writes, with a tie named once.

    Args:
        tying: The value of `TransformerConfig.embedding_tying`. "all" is "target": there is no source.
        name: That of the embeddings.
    """
    weights = {"target_embedding/embeddings": same(name)}
    if tying == "none":
        weights["target_embedding/reverse_embeddings"] = transposed(_SOFTMAX)
    return weights
