"""The names of the layers of BART, which Marian, mBART and M2M100 share, and their places in kformer's model."""

from collections.abc import Iterator

from kformer.importing.imported import Source, dense, norm

_PARTS = {"encoder": ("self_attention",), "decoder": ("self_attention", "cross_attention")}
_NAMES = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}


def bart_layers(side: str, number: int) -> dict[str, Source]:
    """The weights of all layers of an encoder or decoder.

    Args:
        side: "encoder" or "decoder".
        number: Of its layers.
    """
    return {path: source for index in range(number) for path, source in _layer(side, index)}


def _layer(side: str, index: int) -> Iterator[tuple[str, Source]]:
    path, name = f"{side}/layer_{index}", f"model.{side}.layers.{index}"
    for part in _PARTS[side]:
        for ours, theirs in _PROJECTIONS.items():
            yield from dense(f"{path}/{part}/{ours}", f"{name}.{_NAMES[part]}.{theirs}").items()
        yield from norm(f"{path}/{part}_residual/norm", f"{name}.{_NAMES[part]}_layer_norm").items()
    yield from dense(f"{path}/feed_forward/inner", f"{name}.fc1").items()
    yield from dense(f"{path}/feed_forward/outer", f"{name}.fc2").items()
    yield from norm(f"{path}/feed_forward_residual/norm", f"{name}.final_layer_norm").items()
