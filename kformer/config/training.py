"""The configuration of training."""

import dataclasses
from typing import Any, Self

from kformer.config.base import Config
from kformer.config.monitors import BLEU_TOKENIZERS, MONITORS
from kformer.config.sizes import TRAINING_OF_SIZE, values_of_size
from kformer.config.tasks import task_kind
from kformer.config.transformer import TransformerConfig

TOKENIZER_TYPES = ("bpe", "unigram", "words", "symbols")
LABEL_SMOOTHING_FORMS = ("all", "others")
PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True)
class TrainingConfig(Config):
    """Text, batches, optimizer and budget of one training run.

    Raises:
        ValueError: A field is out of range.

    Examples:
        >>> training = TrainingConfig.of_size("tiny", max_minutes=10)
        >>> training.vocab_size, training.warmup_steps, training.max_minutes
        (4000, 800, 10.0)
    """

    tokenizer: str = "bpe"  # "bpe", "unigram", "words" or "symbols" (already split by blanks)
    vocab_size: int = 8000  # subwords or words; fewer where the texts do not yield as many; symbols are all taken
    shared_vocabulary: bool = True  # one vocabulary for both sides, or one a side
    source_embeddings: str | None = None  # file of word vectors (word2vec or GloVe) with which the embeddings begin
    target_embeddings: str | None = None  # the same, of the target
    train_embeddings: bool = True  # False: embeddings from these files, or of the initial weights, stay as they are
    max_length: int = 128  # longer pairs (in tokens, with the end token) are skipped
    tokens_per_batch: int = 4096  # rows x the longer of the two padded lengths, in a micro-batch of all devices
    batch_size_multiple: int = 1  # a batch has a multiple of this many rows; a multiple of the number of devices
    label_smoothing: float = 0.1  # epsilon_ls, section 5.4
    # "all": epsilon / K to each class; "others": epsilon / (K - 1) to each wrong one
    label_smoothing_form: str = "all"
    warmup_steps: int = 4000  # warmup_steps, equation 3
    learning_rate_scale: float = 1.0  # factor on equation 3
    # A budget of few steps or epochs shortens the warm-up to a quarter of its updates; the peak of the rate stays. The
    # sizes ask for this, but not where warmup_steps or learning_rate_scale is given.
    fit_warmup: bool = False
    beta_1: float = 0.9  # Adam, section 5.3
    beta_2: float = 0.98  # Adam, section 5.3
    adam_epsilon: float = 1e-9  # Adam, section 5.3
    gradient_accumulation_steps: int = 1  # micro-batches of an update: their gradients are added
    precision: str = "auto"  # "auto": mixed_bfloat16 where the machine multiplies it faster, else float32
    # The budget: the first of the three that runs out ends the run.
    max_epochs: int | None = None  # passes over the training pairs
    max_steps: int | None = None  # updates
    max_minutes: float | None = None  # of training, in all sessions of the run
    validation_steps: int | None = None  # updates between validations; None: an epoch, at least 50 updates
    # The validation metric by which the best weights are found: a name in `kformer.config.MONITORS`, such as "loss",
    # "bleu" or "word_error_rate" (the last two score translations).
    monitor: str = "loss"
    patience: int = 10  # validations without improvement before the run stops
    # Sources translated in each validation; None: 500 if `monitor` scores translations, else 0.
    scored_sources: int | None = None
    # sacreBLEU's tokenizer for BLEU: a name in `kformer.config.BLEU_TOKENIZERS`; None: "13a", but "zh" for Chinese and
    # "char" for other scripts without blanks between words, by the validation targets
    bleu_tokenizer: str | None = None
    mask_whole_words: bool = False  # of a masked language model: hide all tokens of a word, or each by itself
    ema_decay: float = 0.0  # decay of the moving average of the weights, per update; 0: the weights as trained
    keep_weights: int = 5  # validations whose weights are kept, for an average (section 6.1)
    checkpoint_minutes: float = 2.0  # between checkpoints; one is written after every validation, too
    seed: int = 1  # of the first weights, the order of the batches, and dropout

    def __post_init__(self) -> None:
        self._check_types()
        self._check_choice("tokenizer", TOKENIZER_TYPES)
        self._check_choice("label_smoothing_form", LABEL_SMOOTHING_FORMS)
        self._check_choice("precision", PRECISIONS)
        self._check_choice("monitor", tuple(MONITORS))
        if self.bleu_tokenizer is not None:
            self._check_choice("bleu_tokenizer", BLEU_TOKENIZERS)
        self._check_positive("vocab_size", "max_length", "tokens_per_batch", "warmup_steps", "learning_rate_scale")
        self._check_positive("adam_epsilon", "gradient_accumulation_steps", "patience")
        self._check_positive("batch_size_multiple")
        self._check_positive("max_epochs", "max_steps", "max_minutes", "validation_steps")
        self._check_positive("checkpoint_minutes")
        if self.keep_weights < 0:
            raise ValueError(f"keep_weights must be at least 0. Received: keep_weights={self.keep_weights}.")
        for name in ("label_smoothing", "beta_1", "beta_2", "ema_decay"):
            self._check_rate(name)
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

    @classmethod
    def of_size(cls, name: str, task: str = "translate", **changes: Any) -> Self:
        """Settings that suit a model of the size `tiny`, `small`, `base` or `big`, with some fields changed.

        Args:
            name: The size.
            task: What the model learns, one of `kformer.config.TASKS`. Language models, for example, are trained
                without label smoothing.
            **changes: Values of fields.

        Raises:
            ValueError: There is no such size or task, or a change does not fit.
        """
        of_task = task_kind(task).training
        return cls.from_dict({**values_of_size(TRAINING_OF_SIZE, name), **of_task}).replace(**changes)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked like a new one. A warm-up or a scale that is given is not fitted."""
        if "warmup_steps" in changes or "learning_rate_scale" in changes:
            changes = {"fit_warmup": False, **changes}
        return super().replace(**changes)


def check_scores(task: str, training: TrainingConfig) -> None:
    """Refuses a training that scores translations for a model that gives none.

    Raises:
        ValueError: The monitor or `scored_sources` is a translator's.

    Examples:
        >>> check_scores("tag", TrainingConfig(monitor="accuracy"))
    """
    if task_kind(task).targets != "text" and (MONITORS[training.monitor].translations or training.scored_sources):
        suitable = [name for name, monitor in MONITORS.items() if not monitor.translations]
        raise ValueError(
            f"A model of the task {task} gives no translations to score. Received: monitor={training.monitor!r}, "
            f"scored_sources={training.scored_sources}. Choose monitor from {', '.join(suitable)}, and leave "
            "scored_sources out."
        )


def check_positions(transformer: TransformerConfig, training: TrainingConfig) -> None:
    """Refuses a training on texts that are longer than the transformer can read.

    Raises:
        ValueError: The transformer has fewer positions than the longest texts have tokens.

    Examples:
        >>> check_positions(TransformerConfig(positional_encoding="learned"), TrainingConfig(max_length=1024))
    """
    longest = transformer.longest_sequence
    if longest is not None and training.max_length > longest:
        raise ValueError(
            f"The transformer has {longest} {transformer.positional_encoding} positions, and training takes pairs "
            f"of up to {training.max_length} tokens. Raise the transformer's max_length, or lower that of training."
        )
