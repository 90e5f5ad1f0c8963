"""The names of activations in Hugging Face's configurations. Those with a gate have none there."""

# kformer's name for each of them.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "swish": "silu",
    "silu": "silu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
# The first of their names for each of kformer's.
NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
