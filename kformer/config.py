"""Configurations of the model (`TransformerConfig`), of training (`TrainingConfig`) and of decoding (`DecodingConfig`).

All are frozen dataclasses with a default for every field. The comment beside a field gives its
symbol in "Attention Is All You Need" (Vaswani et al., 2017), if it has one. Layers do not use these
objects: `kformer.models.build_transformer` unpacks them into plain keywords.
"""

import contextlib
import dataclasses
import math
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Self, get_args, get_origin, get_type_hints

import yaml

from kformer.files import write_json, write_text
from kformer.monitors import MONITORS
from kformer.wording import did_you_mean

# Table 3 of the paper for base and big; tiny and small are sized for a laptop.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"d_model": 128, "d_ff": 512, "num_heads": 4, "num_encoder_layers": 3, "num_decoder_layers": 3},
    "small": {"d_model": 256, "d_ff": 1024, "num_heads": 4, "num_encoder_layers": 3, "num_decoder_layers": 3},
    "base": {"d_model": 512, "d_ff": 2048, "num_heads": 8, "num_encoder_layers": 6, "num_decoder_layers": 6},
    "big": {
        "d_model": 1024,
        "d_ff": 4096,
        "num_heads": 16,
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "dropout_rate": 0.3,
    },
    # About as many parameters as `small` and `base`, most of them in the encoder, which runs once (Kasai et al. 2021).
    "small-shallow-decoder": {
        "d_model": 256,
        "d_ff": 1024,
        "num_heads": 4,
        "num_encoder_layers": 6,
        "num_decoder_layers": 1,
    },
    "base-shallow-decoder": {
        "d_model": 512,
        "d_ff": 2048,
        "num_heads": 8,
        "num_encoder_layers": 12,
        "num_decoder_layers": 1,
    },
}
_TEN_THOUSANDS_OF_PAIRS = {
    "vocab_size": 4000,
    "tokens_per_batch": 4096,
    "warmup_steps": 800,
    "learning_rate_scale": 1.2,
    "ema_decay": 0.999,
}
_PAPERS_DATA = {"vocab_size": 37000, "tokens_per_batch": 25000, "max_length": 256}
# Training options for each size. Those of "tiny" and "small" are for corpora of tens of thousands of pairs, those of
# "base" and "big" follow section 5.
TRAINING_OF_SIZE: dict[str, dict[str, Any]] = {
    "tiny": _TEN_THOUSANDS_OF_PAIRS,
    "small": _TEN_THOUSANDS_OF_PAIRS,
    "base": _PAPERS_DATA,
    "big": _PAPERS_DATA,
    "small-shallow-decoder": _TEN_THOUSANDS_OF_PAIRS,
    "base-shallow-decoder": _PAPERS_DATA,
}
# Training options for some tasks. Smoothed labels would raise the perplexity by which language models are compared.
TRAINING_OF_TASK: dict[str, dict[str, Any]] = {
    "language-model": {"label_smoothing": 0.0},
    "masked-language-model": {"label_smoothing": 0.0},
}
# Kind of positional encoding: whether sequences have at most the model's `max_length` positions. The classes are in
# `kformer.models.transformer.POSITIONS`.
POSITIONAL_ENCODINGS = {
    "sinusoidal": False,
    "learned": True,
    "rotary": False,
    "alibi": False,
    "relative": False,
    "relative_buckets": False,
}
ACTIVATIONS = ("relu", "gelu", "silu", "swiglu", "geglu")
NORMALIZATIONS = ("layer_norm", "rms_norm")
# The classes are in `kformer.models.transformer.DEPTHS`.
DEPTHS = ("stacked", "shared", "adaptive")
EMBEDDING_TYINGS = ("all", "target", "none")
TOKENIZER_TYPES = ("bpe", "unigram", "words", "symbols")
LABEL_SMOOTHING_FORMS = ("all", "others")
# What a model learns to do (the classes are in `kformer.tasks`): whether it learns from plain text, a text on each
# line, and not from pairs.
TASKS = {
    "translate": False,
    "classify": False,
    "tag": False,
    "language-model": True,
    "masked-language-model": True,
}
# By task: the numbers of layers that are not 0.
_LAYERS = {
    "translate": ("num_encoder_layers", "num_decoder_layers"),
    "classify": ("num_encoder_layers",),
    "tag": ("num_encoder_layers",),
    "language-model": ("num_decoder_layers",),
    "masked-language-model": ("num_encoder_layers",),
}
_ENCODERS = ("translate", "classify", "tag", "masked-language-model")
# By task: the tasks of the runs whose weights a model can begin with.
_FIRST_WEIGHTS = {
    "translate": ("translate",),
    "classify": _ENCODERS,
    "tag": _ENCODERS,
    "language-model": ("language-model",),
    "masked-language-model": _ENCODERS,
}
PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True)
class _Config:
    """Checks and files shared by the configurations."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Builds the configuration from plain values; unknown names are refused.

        Raises:
            ValueError: A name is no field of this configuration, or a value is out of range.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(str(name) for name in set(values) - set(known))
        if unknown:
            raise ValueError(
                f"{cls.__name__} has no field {', '.join(map(repr, unknown))}. "
                f"Its fields are: {', '.join(known)}. Remove or rename the unknown ones.{did_you_mean(unknown, known)}"
            )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, ready for JSON or YAML."""
        return dataclasses.asdict(self)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked like a new one."""
        return self.from_dict({**self.to_dict(), **changes})

    @classmethod
    def load(cls, path: str | pathlib.Path) -> Self:
        """Reads a `.json`, `.yaml` or `.yml` file.

        Raises:
            FileNotFoundError: There is no such file.
            OSError: The file cannot be read.
            ValueError: The file is not a mapping of field names to values, a name is no field of this configuration, or
                a value is out of range. The message names the file.
        """
        values = read_mapping(path)
        with errors_name(path):
            return cls.from_dict(values)

    def save(self, path: str | pathlib.Path) -> None:
        """Writes a `.json`, `.yaml` or `.yml` file, whole or not at all."""
        path = pathlib.Path(path)
        if path.suffix == ".json":
            write_json(path, self.to_dict())
        else:
            write_text(path, yaml.safe_dump(self.to_dict(), sort_keys=False))

    def _check_types(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name)
            allowed = get_args(hint) if get_origin(hint) is not None or get_args(hint) else (hint,)
            if float in allowed and type(value) is int and abs(value) <= sys.float_info.max:
                object.__setattr__(self, name, float(value))
            elif type(value) not in allowed:
                expected = " or ".join(kind.__name__ for kind in allowed)
                raise ValueError(
                    f"{name} must be {expected}. Received: {name}={value!r} of type {type(value).__name__}."
                )

    def _check_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:  # refuses nan, too
                raise ValueError(f"{name} must be greater than 0 and finite. Received: {name}={value}.")

    def _check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in choices:
            raise ValueError(
                f"{name} must be one of {', '.join(choices)}. Received: {name}={value!r}."
                f"{did_you_mean([value], choices)}"
            )

    def _check_rate(self, name: str) -> None:
        value = getattr(self, name)
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1. Received: {name}={value}.")


def _values_of_size(sizes: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    if name not in sizes:
        raise ValueError(f"There is no size {name!r}. Choose one of {', '.join(sizes)}.{did_you_mean([name], sizes)}")
    return sizes[name]


class _Loader(yaml.SafeLoader):
    """A safe YAML loader that reads 1e-9 as a number, as JSON and YAML 1.2 do. YAML 1.1 requires a dot in it."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


@contextlib.contextmanager
def errors_name(path: str | pathlib.Path) -> Iterator[None]:
    """Puts the path of a file before the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_parts(path: str | pathlib.Path, parts: Sequence[str], others: Sequence[str] = ()) -> dict[str, Any]:
    """Reads a JSON or YAML file with a mapping under each of the names `parts`, and values under the names `others`.

    Returns:
        The values by name; an empty mapping for a part that is missing.

    Raises:
        ValueError: The file does not parse, has an unknown name, or a part is not a mapping.
    """
    values = read_mapping(path)
    unknown = sorted(str(name) for name in set(values) - {*parts, *others})
    if unknown:
        raise ValueError(
            f"{path} has the unknown part {', '.join(unknown)}. Put every field under one of: {', '.join(parts)}."
            f"{did_you_mean(unknown, (*parts, *others))}"
        )
    for part in parts:
        values[part] = values.get(part) or {}
        if not isinstance(values[part], dict):
            raise ValueError(
                f"{path} must contain a mapping of fields to values under {part}. Received: {values[part]!r}. "
                f"Write, for example, `{part}: {{FIELD: VALUE}}`."
            )
    return values


def read_mapping(path: str | pathlib.Path) -> dict[str, Any]:
    """The mapping in a JSON or YAML file.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: The file cannot be read.
        ValueError: The file does not parse, or does not contain a mapping.
    """
    path = pathlib.Path(path)
    if path.suffix not in (".json", ".yaml", ".yml"):
        raise ValueError(f"The name of a configuration file must end in .json, .yaml or .yml. Received: {path}.")
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}. Name a JSON or YAML file that exists.")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # JSON is a subset of YAML
    except OSError as error:
        raise OSError(
            f"{path} cannot be read: {error.strerror}. Name a JSON or YAML file that you may read."
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}. Convert the file.") from error
    except (yaml.YAMLError, ValueError) as error:  # a date such as 2026-13-01 is a ValueError
        raise ValueError(f"{path} is not valid {path.suffix[1:]}: {error}. Correct the file.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must contain a mapping of names to values. Received: {type(values).__name__}.")
    return values


@dataclasses.dataclass(frozen=True)
class TransformerConfig(_Config):
    """The sizes and options of a Transformer. Defaults are the paper's base model.

    An encoder-only model has no decoder layers, a decoder-only model no encoder layers.

    Raises:
        ValueError: A field is out of range, or two fields do not fit each other.

    Example:
        >>> TransformerConfig().d_model, TransformerConfig.of_size("big").d_model
        (512, 1024)
        >>> TransformerConfig.of_size("tiny", norm_first=True).replace(num_heads=8).d_model
        128
    """

    source_vocab_size: int = 37000  # V of the source; the paper's en-de vocabulary is shared
    target_vocab_size: int = 37000  # V of the target
    num_encoder_layers: int = 6  # N; if the depth is not "stacked", the number of steps
    num_decoder_layers: int = 6  # N; if the depth is not "stacked", the number of steps
    d_model: int = 512  # d_model
    d_ff: int = 2048  # d_ff
    num_heads: int = 8  # h; d_k = d_v = d_model / h
    num_key_value_heads: int | None = None  # heads of keys and values, a divisor of h (Ainslie et al., 2023); None: h
    dropout_rate: float = 0.1  # P_drop, on sublayer outputs and embeddings (section 5.4)
    attention_dropout_rate: float = 0.0  # on attention weights; not in the paper
    norm_first: bool = False  # False: LayerNorm(x + Sublayer(x)), section 3.1; True: x + Sublayer(LayerNorm(x))
    activation: str = "relu"  # of the feed-forward network, equation 2; swiglu and geglu have a gate, Shazeer (2020)
    normalization: str = "layer_norm"  # section 3.1; "rms_norm": RMS normalization, Zhang and Sennrich (2019)
    layer_norm_epsilon: float = 1e-6  # added to the variance in norms; the paper gives no value
    use_bias: bool = True  # in the projections of the attention and in the feed-forward network, equation 2
    # r of section 4: self-attention reaches those less than r positions away, in the decoder the last r; None: all.
    attention_window: int | None = None
    positional_encoding: str = "sinusoidal"  # section 3.5; "learned" is row (E) of Table 3
    max_length: int = 1024  # longest sequence with learned positions; the others have no limit
    # "stacked": N layers; "shared": one layer, N times, and "adaptive": at most N times, Dehghani et al. (2018)
    depth: str = "stacked"
    halting_epsilon: float = 0.01  # with "adaptive", positions halt at a sum of 1 - epsilon, Graves (2016)
    ponder_cost: float = 0.01  # with "adaptive", tau: what a unit of ponder time adds to the training loss
    # Section 3.4: "all": source, target and softmax share one matrix; "target": target and softmax share one; "none".
    embedding_tying: str = "all"
    embedding_dim: int | None = None  # size of the embedding vectors, if not d_model: a projection follows them
    pad_id: int = 0
    start_id: int = 1
    end_id: int = 2

    def __post_init__(self) -> None:
        self._check_types()
        self._check_positive("source_vocab_size", "target_vocab_size")
        self._check_depths()
        self._check_positive("d_model", "d_ff", "num_heads", "num_key_value_heads", "max_length", "embedding_dim")
        self._check_rate("dropout_rate")
        self._check_rate("attention_dropout_rate")
        self._check_positive("attention_window")
        self._check_positive("layer_norm_epsilon")
        self._check_choice("activation", ACTIVATIONS)
        self._check_choice("normalization", NORMALIZATIONS)
        self._check_choice("positional_encoding", tuple(POSITIONAL_ENCODINGS))
        self._check_choice("depth", DEPTHS)
        self._check_rate("halting_epsilon")
        self._check_choice("embedding_tying", EMBEDDING_TYINGS)
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
        if self.d_model % self.num_heads:
            raise ValueError(
                "d_model must be divisible by num_heads. "
                f"Received: d_model={self.d_model}, num_heads={self.num_heads}. "
                f"Choose d_model={self.num_heads * max(1, round(self.d_model / self.num_heads))}, or another value of "
                "num_heads."
            )
        if self.num_heads % (self.num_key_value_heads or self.num_heads):
            raise ValueError(
                "num_heads must be divisible by num_key_value_heads. "
                f"Received: num_heads={self.num_heads}, num_key_value_heads={self.num_key_value_heads}. "
                f"Choose a divisor of {self.num_heads}."
            )
        if self.positional_encoding == "sinusoidal" and self.d_model % 2:
            raise ValueError(
                "Sinusoidal positions need an even d_model: each sine needs a cosine. "
                f"Received: d_model={self.d_model}. "
                f'Choose d_model={self.d_model + 1}, or positional_encoding="learned".'
            )
        if self.positional_encoding == "rotary" and self.d_model // self.num_heads % 2:
            raise ValueError(
                "Rotary positions turn pairs of features of a head, so d_model / num_heads must be even. "
                f"Received: d_model={self.d_model}, num_heads={self.num_heads}. "
                f"Choose d_model={self.d_model + self.num_heads}, or another value of num_heads."
            )
        if self.embedding_tying == "all" and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                'embedding_tying="all" needs one shared vocabulary. '
                f"Received: source_vocab_size={self.source_vocab_size}, target_vocab_size={self.target_vocab_size}. "
                'Share the vocabulary, or choose embedding_tying="target".'
            )
        special = (self.pad_id, self.start_id, self.end_id)
        if len(set(special)) != 3 or min(special) < 0:
            raise ValueError(
                "pad_id, start_id and end_id must be three different ids of at least 0. "
                f"Received: pad_id={self.pad_id}, start_id={self.start_id}, end_id={self.end_id}."
            )

    def _check_depths(self) -> None:
        depths = (self.num_encoder_layers, self.num_decoder_layers)
        if min(depths) < 0 or max(depths) == 0:
            raise ValueError(
                "num_encoder_layers and num_decoder_layers must be at least 0, and one of them at least 1. "
                f"Received: num_encoder_layers={depths[0]}, num_decoder_layers={depths[1]}."
            )

    @property
    def longest_sequence(self) -> int | None:
        """The largest number of positions of a sequence; None if the positional encoding has no limit."""
        return self.max_length if POSITIONAL_ENCODINGS[self.positional_encoding] else None

    @classmethod
    def of_size(cls, name: str, **changes: Any) -> Self:
        """A model of one of the sizes in `SIZES`, such as `tiny`, `small`, `base` or `big`, with some fields changed.

        `base` and `big` are Table 3 of the paper: with the shared vocabulary of 37,000 they have
        63,082,496 and 214,245,376 parameters.

        Raises:
            ValueError: There is no such size, or a change does not fit.
        """
        return cls.from_dict({**_values_of_size(SIZES, name), **changes})


def check_layers(task: str, transformer: TransformerConfig) -> None:
    """Refuses a transformer without the layers that a model of this task has.

    Raises:
        ValueError: The transformer has no encoder or no decoder layers.

    Example:
        >>> check_layers("classify", TransformerConfig(num_decoder_layers=0))
    """
    missing = [name for name in _LAYERS[task] if not getattr(transformer, name)]
    if missing:
        raise ValueError(
            f"A model of the task {task} needs {' and '.join(_LAYERS[task])} of at least 1. Received: {missing[0]}=0. "
            "Raise it."
        )


@dataclasses.dataclass(frozen=True)
class TrainingConfig(_Config):
    """Text, batches, optimizer and budget of one training run.

    Raises:
        ValueError: A field is out of range.

    Example:
        >>> training = TrainingConfig.of_size("tiny", max_minutes=10)
        >>> training.vocab_size, training.warmup_steps, training.max_minutes
        (4000, 800, 10.0)
    """

    task: str = "translate"  # what the model learns to do, one of `TASKS`
    tokenizer: str = "bpe"  # "bpe", "unigram", "words" or "symbols" (already split by blanks)
    vocab_size: int = 8000  # subwords or words; fewer where the texts do not yield as many; symbols are all taken
    shared_vocabulary: bool = True  # one vocabulary for both sides, or one a side
    # Files of word vectors (word2vec or GloVe) with which the embeddings of the source or the target begin.
    source_embeddings: str | None = None
    target_embeddings: str | None = None
    train_embeddings: bool = True  # False: embeddings from these files, or of the initial weights, stay as they are
    max_length: int = 128  # longer pairs (in tokens, with the end token) are skipped
    tokens_per_batch: int = 4096  # rows x the longer of the two padded lengths, in a micro-batch of all devices
    batch_size_multiple: int = 1  # a batch has a multiple of this many rows; a multiple of the number of devices
    label_smoothing: float = 0.1  # epsilon_ls, section 5.4
    label_smoothing_form: str = (
        "all"  # "all": epsilon / K to every class; "others": epsilon / (K - 1) to the wrong ones
    )
    warmup_steps: int = 4000  # warmup_steps, equation 3
    learning_rate_scale: float = 1.0  # factor on equation 3
    beta_1: float = 0.9  # Adam, section 5.3
    beta_2: float = 0.98
    adam_epsilon: float = 1e-9
    gradient_accumulation_steps: int = 1
    precision: str = "auto"  # "auto": mixed_bfloat16 where the machine multiplies it faster, else float32
    max_epochs: int | None = None  # the budget: the first of the three that runs out ends the run
    max_steps: int | None = None
    max_minutes: float | None = None
    validation_steps: int | None = None  # updates between validations; None: an epoch, at least 50 updates
    # The validation metric by which the best weights are found: a name in `kformer.monitors.MONITORS`, such as "loss",
    # "bleu" or "word_error_rate" (the last two score translations).
    monitor: str = "loss"
    patience: int = 10  # validations without improvement before the run stops
    # Sources translated in each validation; None: 500 if `monitor` scores translations, else 0.
    scored_sources: int | None = None
    mask_whole_words: bool = False  # of a masked language model: hide all tokens of a word, or each by itself
    ema_decay: float = 0.0  # decay of the moving average of the weights, per update; 0: the weights as trained
    keep_weights: int = 5  # validations whose weights are kept, for an average (section 6.1)
    checkpoint_minutes: float = 2.0  # between checkpoints; one is written after every validation, too
    seed: int = 1

    def __post_init__(self) -> None:
        self._check_types()
        self._check_choice("task", tuple(TASKS))
        self._check_choice("tokenizer", TOKENIZER_TYPES)
        self._check_choice("label_smoothing_form", LABEL_SMOOTHING_FORMS)
        self._check_choice("precision", PRECISIONS)
        self._check_choice("monitor", tuple(MONITORS))
        self._check_positive("vocab_size", "max_length", "tokens_per_batch", "warmup_steps", "learning_rate_scale")
        self._check_positive("adam_epsilon", "gradient_accumulation_steps", "patience")
        self._check_positive("batch_size_multiple")
        self._check_positive("max_epochs", "max_steps", "max_minutes", "validation_steps")
        self._check_positive("checkpoint_minutes")
        if self.keep_weights < 0:
            raise ValueError(f"keep_weights must be at least 0. Received: keep_weights={self.keep_weights}.")
        for name in ("label_smoothing", "beta_1", "beta_2", "ema_decay"):
            self._check_rate(name)
        self._check_scores()
        fewest = 1 if MONITORS[self.monitor].translations else 0
        if self.scored_sources is not None and self.scored_sources < fewest:
            raise ValueError(
                "scored_sources must be at least 0, and at least 1 if `monitor` scores translations. "
                f"Received: scored_sources={self.scored_sources}, monitor={self.monitor!r}. "
                "Leave it out for the default."
            )
        if self.tokens_per_batch < self.max_length:
            raise ValueError(
                "tokens_per_batch must hold at least one sentence of max_length tokens. "
                f"Received: tokens_per_batch={self.tokens_per_batch}, max_length={self.max_length}. "
                "Raise tokens_per_batch or lower max_length."
            )

    def _check_scores(self) -> None:
        """Only a translator translates the validation sources."""
        if self.task != "translate" and (MONITORS[self.monitor].translations or self.scored_sources):
            suitable = [name for name, monitor in MONITORS.items() if not monitor.translations]
            raise ValueError(
                f"A model of the task {self.task} gives no translations to score. Received: monitor={self.monitor!r}, "
                f"scored_sources={self.scored_sources}. Choose monitor from {', '.join(suitable)}, and leave "
                "scored_sources out."
            )

    @classmethod
    def of_size(cls, name: str, **changes: Any) -> Self:
        """Settings that suit a model of the size `tiny`, `small`, `base` or `big`, with some fields changed.

        A `task` among the changes has settings of its own: language models are trained without label smoothing.

        Raises:
            ValueError: There is no such size, or a change does not fit.
        """
        of_task = TRAINING_OF_TASK.get(changes.get("task", ""), {})
        return cls.from_dict({**_values_of_size(TRAINING_OF_SIZE, name), **of_task, **changes})


def check_first_weights(task: str, earlier: str) -> None:
    """Refuses first weights of a model that has no layers in common with the new one.

    Args:
        task: What the new model learns.
        earlier: What the model with the first weights has learned.

    Raises:
        ValueError: A model of one of the tasks has no encoder, or one no decoder of the same kind.

    Example:
        >>> check_first_weights("classify", "masked-language-model")
    """
    if earlier not in _FIRST_WEIGHTS[task]:
        raise ValueError(
            f"A model of the task {task} can begin with the weights of a run of: {', '.join(_FIRST_WEIGHTS[task])}. "
            f"Received: a run of the task {earlier}. Begin with another run, or with new weights."
        )


def check_positions(transformer: TransformerConfig, training: TrainingConfig) -> None:
    """Refuses a training on texts that are longer than the transformer can read.

    Raises:
        ValueError: The transformer has fewer positions than the longest texts have tokens.

    Example:
        >>> check_positions(TransformerConfig(positional_encoding="learned"), TrainingConfig(max_length=1024))
    """
    longest = transformer.longest_sequence
    if longest is not None and training.max_length > longest:
        raise ValueError(
            f"The transformer has {longest} {transformer.positional_encoding} positions, and training takes pairs "
            f"of up to {training.max_length} tokens. Raise the transformer's max_length, or lower that of training."
        )


@dataclasses.dataclass(frozen=True)
class DecodingConfig(_Config):
    """How a translator searches. Defaults are the paper's (section 6.1).

    Raises:
        ValueError: A field is out of range.

    Example:
        >>> decoding = DecodingConfig(beam_size=8).replace(max_length=20)
        >>> decoding.beam_size, decoding.max_length, decoding.length_penalty
        (8, 20, 0.6)
    """

    beam_size: int = 4  # 1 is greedy search
    length_penalty: float = 0.6  # alpha of Wu et al. (2016), equation 14
    max_extra_length: int = 50  # a translation has at most source length + 50 tokens
    max_length: int | None = None  # and at most this many, if given
    min_length: int = 0  # tokens before a translation may end
    max_source_length: int = 256  # with the end id; longer texts are translated in parts

    def __post_init__(self) -> None:
        self._check_types()
        self._check_positive("beam_size", "max_extra_length", "max_length", "max_source_length")
        for name, meaning in (
            ("length_penalty", "to compare plain log probabilities"),
            ("min_length", "for no minimum"),
        ):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite. Received: {name}={value}. Pass 0 {meaning}.")
