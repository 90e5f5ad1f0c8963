"""The configuration of the model."""

import dataclasses
import math
from typing import Any, ClassVar, Self

from kformer.config.base import Config
from kformer.config.fields import setting
from kformer.config.sizes import SIZES, values_of_size
from kformer.config.tasks import TASKS, task_kind

# Kinds of positions and of depth, each with module and name of its class. `pkgutil.resolve_name` reads them when a
# model is built: the classes need Keras, which a configuration does not import.
POSITIONAL_ENCODINGS = {
    "sinusoidal": "kformer.layers:PositionalEncoding",
    "sinusoidal_halves": "kformer.layers:HalvedPositionalEncoding",
    "learned": "kformer.layers:LearnedPositionalEncoding",
    "rotary": "kformer.layers:RotaryPositions",
    "alibi": "kformer.layers:LinearBias",
    "relative": "kformer.layers:RelativePositions",
    "relative_values": "kformer.layers:RelativeDistances",
    "relative_buckets": "kformer.layers:BucketedBias",
}
DEPTHS = {
    "stacked": "kformer.layers:StackedDepth",
    "shared": "kformer.layers:SharedDepth",
    "adaptive": "kformer.layers:AdaptiveDepth",
}
_SINUSOIDAL_POSITIONS = ("sinusoidal", "sinusoidal_halves")
# With these, sequences have at most the model's `max_length` positions. With the others they have no limit.
_LIMITED_POSITIONS = ("learned",)
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh")
NORMALIZATIONS = ("layer_norm", "rms_norm")
EMBEDDING_TYINGS = ("all", "target", "none")


@dataclasses.dataclass(frozen=True)
class TransformerConfig(Config):
    """The sizes and options of a Transformer. Defaults are the paper's base model.

    An encoder-only model has no decoder layers, a decoder-only model no encoder layers.

    Raises:
        ValueError: A field is out of range, or two fields do not fit each other.

    Examples:
        >>> TransformerConfig().d_model, TransformerConfig.of_size("big").d_model
        (512, 1024)
        >>> TransformerConfig.of_size("tiny", norm_first=True).replace(num_heads=8).d_model
        128
    """

    panel: ClassVar[str] = "Model"
    source_vocab_size: int = setting(37000, "Size of the source's vocabulary, V. The paper's for en-de is shared.")
    target_vocab_size: int = setting(37000, "Size of the target's vocabulary, V.")
    num_encoder_layers: int = setting(6, "Number of encoder layers, N; if the depth is not stacked, of steps.")
    num_decoder_layers: int = setting(6, "Number of decoder layers, N; if the depth is not stacked, of steps.")
    d_model: int = setting(512, "Size of the embeddings, and of what goes from layer to layer.")
    d_ff: int = setting(2048, "Inner size of the feed-forward network, equation 2.")
    num_heads: int = setting(8, "Number of heads of the attention, h.")
    head_dim: int | None = setting(
        None, "Size of a head, d_k = d_v, by default d_model / num_heads. T5 and Gemma have other sizes."
    )
    num_key_value_heads: int | None = setting(
        None,
        "Number of heads of keys and values, a divisor of num_heads (Ainslie et al., 2023). By default there are as "
        "many as num_heads.",
    )
    dropout_rate: float = setting(0.1, "Dropout on the outputs of sublayers and on embeddings, P_drop, section 5.4.")
    attention_dropout_rate: float = setting(0.0, "Dropout on attention weights; not in the paper.")
    norm_first: bool = setting(
        False, "Whether a norm stands before a sublayer, x + Sublayer(Norm(x)), not after it as in section 3.1."
    )
    activation: str = setting(
        "relu",
        "Activation of the feed-forward network, equation 2. swiglu, geglu and geglu_tanh have a gate (Shazeer, 2020). "
        'GPT-2 has gelu_tanh (also called "gelu_new"), T5 1.1 and Gemma have geglu_tanh.',
        ACTIVATIONS,
    )
    normalization: str = setting(
        "layer_norm",
        "Kind of the norms: layer_norm of section 3.1, or rms_norm (Zhang and Sennrich, 2019).",
        NORMALIZATIONS,
    )
    layer_norm_epsilon: float = setting(1e-6, "What norms add to the variance; the paper gives no value.")
    use_bias: bool = setting(
        True, "Whether the projections of attention and the feed-forward network have a bias, equation 2."
    )
    attention_window: int | None = setting(
        None,
        "Self-attention reaches positions less than so many away, in the decoder the last so many; r of section 4. By "
        "default it reaches all.",
    )
    positional_encoding: str = setting(
        "sinusoidal",
        "Kind of the positions, section 3.5. sinusoidal_halves has all sines before all cosines (Marian); learned is "
        "row (E) of Table 3.",
        POSITIONAL_ENCODINGS,
    )
    max_length: int = setting(1024, "Longest sequence with learned positions, in tokens; the others have no limit.")
    max_wavelength: float = setting(
        10000.0,
        'Longest wavelength of sinusoids, section 3.5, and rotary positions ("rope_theta", 500,000 in Llama 3).',
    )
    first_position: int = setting(
        0, "Number of the first position, with sinusoids. OpenNMT-tf counts from 1, M2M100 from 2."
    )
    max_relative_distance: int = setting(
        16, "With relative and relative_values positions, longer distances count as this one (Shaw et al., 2018)."
    )
    depth: str = setting(
        "stacked",
        "How layers follow one another. stacked: N layers; shared: one layer, N times; adaptive: one layer, at most N "
        "times (Dehghani et al., 2018).",
        DEPTHS,
    )
    halting_epsilon: float = setting(
        0.01, "With an adaptive depth, a position halts at a sum of 1 - epsilon (Graves, 2016)."
    )
    ponder_cost: float = setting(
        0.01, "With an adaptive depth, what a unit of ponder time adds to the training loss, tau."
    )
    embedding_tying: str = setting(
        "all",
        "Which embeddings share a matrix, section 3.4. all: source, target and softmax share one; target: target and "
        "softmax share one; none: each has its own.",
        EMBEDDING_TYINGS,
    )
    scale_embeddings: bool = setting(
        True, "Whether embeddings are multiplied by sqrt(d_model), section 3.4. BERT, GPT-2, BART and T5 do not do so."
    )
    normalize_embeddings: bool = setting(
        False, "Whether a norm follows the sum of embeddings and positions, as in BERT and BART."
    )
    keep_pooler: bool = setting(
        False,
        "Whether a masked language model holds the first layer of a classifier's head, as BERT does, for classifiers "
        "that begin with its weights. It is not trained before.",
    )
    embedding_dim: int | None = setting(
        None, "Size of the embedding vectors, by default d_model. If it is another one, a projection follows them."
    )
    softmax_bias: bool = setting(
        False,
        'Whether the logits have a trained bias, as in Marian ("final_logits_bias"), OpenNMT-tf, and BERT where it '
        "predicts tokens.",
    )
    pad_id: int = setting(0, "Id of the padding behind shorter sequences of a batch.")
    start_id: int = setting(
        1, "Id of the token before the first one of a target; may be pad_id (Marian, T5) or end_id (BART)."
    )
    end_id: int = setting(2, "Id of the token that ends a text; never pad_id.")
    task: str = setting(
        "translate",
        "What the model learns. For classify, the target is a label; for tag, a label for each word; the language "
        "models read plain text.",
        TASKS,
    )

    def __post_init__(self) -> None:
        self._check_types_and_choices()
        self._check_positive("source_vocab_size", "target_vocab_size")
        self._check_depths()
        self._check_positive("d_model", "d_ff", "num_heads", "max_length", "max_relative_distance")
        self._check_positive("head_dim", "num_key_value_heads", "embedding_dim")
        self._check_rate("dropout_rate")
        self._check_rate("attention_dropout_rate")
        self._check_positive("attention_window")
        self._check_positive("layer_norm_epsilon", "max_wavelength")
        self._check_rate("halting_epsilon")
        if not 0 <= self.ponder_cost < math.inf:
            raise ValueError(
                f"ponder_cost must be at least 0 and finite. Received: ponder_cost={self.ponder_cost}. "
                "Pass 0 for no cost."
            )
        if self.depth != "stacked" and self.d_model % 2:
            raise ValueError(
                "The sinusoids of the steps of shared layers need an even d_model: each sine needs a cosine. "
                f'Received: depth="{self.depth}", d_model={self.d_model}. '
                f'Choose d_model={self.d_model + 1}, or depth="stacked".'
            )
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ValueError(
                "d_model must be divisible by num_heads. "
                f"Received: d_model={self.d_model}, num_heads={self.num_heads}. "
                f"Choose d_model={self.num_heads * max(1, round(self.d_model / self.num_heads))}, or another value of "
                "num_heads, or a head_dim."
            )
        if self.num_heads % (self.num_key_value_heads or self.num_heads):
            raise ValueError(
                "num_heads must be divisible by num_key_value_heads. "
                f"Received: num_heads={self.num_heads}, num_key_value_heads={self.num_key_value_heads}. "
                f"Choose a divisor of {self.num_heads}."
            )
        self._check_positions()
        if self.embedding_tying == "all" and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                'embedding_tying="all" needs one shared vocabulary. '
                f"Received: source_vocab_size={self.source_vocab_size}, target_vocab_size={self.target_vocab_size}. "
                'Share the vocabulary, or choose embedding_tying="target".'
            )
        if self.pad_id == self.end_id or min(self.pad_id, self.start_id, self.end_id) < 0:
            raise ValueError(
                "pad_id, start_id and end_id must be at least 0, and pad_id must differ from end_id. "
                f"Received: pad_id={self.pad_id}, start_id={self.start_id}, end_id={self.end_id}."
            )

    def _check_positions(self) -> None:
        if self.first_position and self.positional_encoding not in _SINUSOIDAL_POSITIONS:
            raise ValueError(
                "first_position is the number of the first position with sinusoids. "
                f'Received: first_position={self.first_position}, positional_encoding="{self.positional_encoding}". '
                "Leave it out. Of a table of learned positions that begins with rows for padding, leave out these rows."
            )
        if self.first_position < 0:
            raise ValueError(
                f"first_position must be at least 0. Received: first_position={self.first_position}. "
                "Pass 0 to count positions from 0, as the paper does."
            )
        if self.positional_encoding in _SINUSOIDAL_POSITIONS and self.d_model % 2:
            raise ValueError(
                "Sinusoidal positions need an even d_model: each sine needs a cosine. "
                f"Received: d_model={self.d_model}. "
                f'Choose d_model={self.d_model + 1}, or positional_encoding="learned".'
            )
        if self.positional_encoding == "rotary" and self.head_dim is not None and self.head_dim % 2:
            raise ValueError(
                "Rotary positions turn pairs of features of a head, so head_dim must be even. "
                f"Received: head_dim={self.head_dim}. Choose head_dim={self.head_dim + 1}."
            )
        if self.positional_encoding == "rotary" and self.head_size % 2:
            raise ValueError(
                "Rotary positions turn pairs of features of a head, so d_model / num_heads must be even. "
                f"Received: d_model={self.d_model}, num_heads={self.num_heads}. "
                f"Choose d_model={self.d_model + self.num_heads}, or another value of num_heads."
            )

    def _check_depths(self) -> None:
        depths = (self.num_encoder_layers, self.num_decoder_layers)
        if min(depths) < 0 or max(depths) == 0:
            raise ValueError(
                "num_encoder_layers and num_decoder_layers must be at least 0, and one of them at least 1. "
                f"Received: num_encoder_layers={depths[0]}, num_decoder_layers={depths[1]}."
            )

    @property
    def head_size(self) -> int:
        """K, the size of a head: `head_dim`, or else d_model / h."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def layers_relative_distance(self) -> int | None:
        """`max_relative_distance`, if each layer has vectors of its own for distances; None otherwise."""
        return self.max_relative_distance if self.positional_encoding == "relative_values" else None

    @property
    def longest_sequence(self) -> int | None:
        """The largest number of positions of a sequence; None if the positional encoding has no limit."""
        return self.max_length if self.positional_encoding in _LIMITED_POSITIONS else None

    @property
    def target_pad_id(self) -> int:
        """Id of the places where nothing is to be predicted. Labels have ids of their own, and are padded with 0."""
        return 0 if task_kind(self.task).has_labels else self.pad_id

    @classmethod
    def of_size(cls, name: str, **changes: Any) -> Self:
        """A model of one of the sizes in `SIZES`, such as `tiny`, `small`, `base` or `big`, with some fields changed.

        `base` and `big` are Table 3 of the paper: with the shared vocabulary of 37,000 they have
        63,082,496 and 214,245,376 parameters.

        Raises:
            ValueError: There is no such size, or a change does not fit.
        """
        return cls.from_dict({**values_of_size(SIZES, name), **changes})


def check_layers(transformer: TransformerConfig) -> None:
    """Refuses a transformer without the layers that a model of its task has.

    Raises:
        ValueError: The transformer has no encoder or no decoder layers.

    Examples:
        >>> check_layers(TransformerConfig(num_decoder_layers=0, task="classify"))
    """
    layers = task_kind(transformer.task).layers
    missing = [name for name in layers if not getattr(transformer, name)]
    if missing:
        raise ValueError(
            f"A model of the task {transformer.task} needs {' and '.join(layers)} of at least 1. "
            f"Received: {missing[0]}=0. Raise it."
        )


def check_special_ids(transformer: TransformerConfig) -> None:
    """Refuses special ids that an encoder-only model cannot tell apart.

    Raises:
        ValueError: There is no decoder, and the start id is that of padding or of the end.

    Examples:
        >>> check_special_ids(TransformerConfig(start_id=0))
    """
    if not transformer.num_decoder_layers and transformer.start_id in (transformer.pad_id, transformer.end_id):
        raise ValueError(
            "start_id must differ from pad_id and end_id: an encoder-only model tells start, end and padding apart by "
            f"their ids. Received: pad_id={transformer.pad_id}, start_id={transformer.start_id}, "
            f"end_id={transformer.end_id}. Choose another start_id."
        )
