"""The configuration of training."""

import dataclasses
import math
from collections.abc import Collection
from typing import Any, ClassVar, Self

from kformer.config.base import Config
from kformer.config.decoding import TAG_PLACES
from kformer.config.fields import setting
from kformer.config.monitors import BLEU_TOKENIZERS, MONITORS
from kformer.config.optimization import (
    EQUATION_3,
    OPTIMIZERS,
    SCHEDULES,
    check_optimizer,
    check_schedule,
    without_rate_of_other,
)
from kformer.config.sizes import TRAINING_OF_SIZE, values_of_size
from kformer.config.tasks import TASKS, task_kind
from kformer.config.transformer import TransformerConfig

TOKENIZER_TYPES = ("bpe", "unigram", "words", "symbols")
LABEL_SMOOTHING_FORMS = ("all", "others")
# The kinds of tokens that training may divide anew each time, and the field that asks for it.
SAMPLING_FIELDS = {"bpe": "bpe_dropout", "unigram": "unigram_alpha"}
LONGEST_ALIGNED = 1 << 16  # tokens: the places of aligned tokens are kept in 16 bits
TRAINING_PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")


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

    panel: ClassVar[str] = "Training"
    tokenizer: str = setting(
        "bpe", "Kind of the tokens; symbols are texts that blanks divide already.", TOKENIZER_TYPES, "Data"
    )
    vocab_size: int = setting(
        8000,
        "Number of subwords or words, or fewer where the texts do not yield as many; symbols are all taken.",
        panel="Data",
    )
    shared_vocabulary: bool = setting(
        True, "Whether source and target have one vocabulary together, or one each.", panel="Data"
    )
    source_tokenizer: str | None = setting(
        None,
        "File of a SentencePiece model of your own for the sources, in place of tokens that are learned. With a shared "
        "vocabulary it is also that of the targets.",
        panel="Data",
    )
    target_tokenizer: str | None = setting(
        None, "File of a SentencePiece model of your own for the targets of a translator.", panel="Data"
    )
    user_symbols: str = setting(
        "",
        "Texts with blanks between them, such as '<2es> {0}', each of which stays one token of the subwords that are "
        "learned: SentencePiece's user-defined symbols.",
        panel="Data",
    )
    bpe_dropout: float = setting(
        0.0,
        "Probability that a merge of a bpe subword is left out, anew each time that a training text is seen: p of "
        "BPE-dropout (Provilkov et al. 2020), who take 0.1. 0: texts have their usual subwords.",
        panel="Data",
    )
    unigram_alpha: float = setting(
        0.0,
        "Unigram subwords of a training text are drawn anew each time that it is seen, with probabilities to the power "
        "of this alpha (Kudo 2018); the smaller, the more they differ. 0: texts have their usual subwords.",
        panel="Data",
    )
    source_embeddings: str | None = setting(
        None,
        "File of word vectors, word2vec's or GloVe's, with which the embeddings of the source begin.",
        panel="Model",
    )
    target_embeddings: str | None = setting(
        None, "File of word vectors with which the embeddings of the target begin.", panel="Model"
    )
    train_embeddings: bool = setting(
        True, "Whether training changes embeddings that begin with such a file or with initial weights.", panel="Model"
    )
    max_length: int = setting(
        128, "Longest text of a pair in tokens, with the end token; longer pairs are skipped.", panel="Data"
    )
    tokens_per_batch: int = setting(
        4096, "Rows times the longer of the two padded lengths, in a micro-batch of all devices.", panel="Data"
    )
    batch_size_multiple: int = setting(
        1, "A batch has a multiple of this many rows, and of the number of devices.", panel="Data"
    )
    corpus_weights: str = setting(
        "",
        "Numbers with blanks between them, one for each of several corpora: a pair of a corpus of weight 2 is seen "
        "twice as often as one of weight 1.",
        panel="Data",
    )
    corpus_temperature: float = setting(
        1.0,
        "From 1 up: small corpora are seen more often. One of n pairs gets a share of n ** (1 / temperature).",
        panel="Data",
    )
    tags_before: str | None = setting(
        None,
        "Where the model reads the tags of corpora: before the source, as its first word, or before the target, in "
        "place of the start token. By default as the model of the first weights, else before the source.",
        panel="Data",
        choices=TAG_PLACES,
    )
    label_smoothing: float = setting(0.1, "Label smoothing, epsilon_ls of section 5.4.")
    label_smoothing_form: str = setting(
        "all",
        "How labels are smoothed. all: epsilon / K to each of K classes; others: epsilon / (K - 1) to each wrong one.",
        LABEL_SMOOTHING_FORMS,
    )
    schedule: str = setting(
        EQUATION_3,
        "The learning rate after its linear rise. equation_3: the paper's, whose peak is learning_rate_scale * "
        "(d_model * warmup_steps) ** -0.5; the others have the peak learning_rate. constant: it stays; inverse_sqrt: "
        "it falls as in the paper; linear and cosine: it falls to final_learning_rate at the last update of max_steps "
        "or max_epochs.",
        SCHEDULES,
    )
    r_drop: float = setting(
        0.0,
        "R-Drop's alpha, such as 5: each pair is read twice, with another dropout, and the two predictions learn to "
        "agree. 0: each pair is read once.",
    )
    guided_alignment: float = setting(
        0.0,
        "Weight, such as 0.1, of a second term of a translator's loss: the cross entropy between the word alignments "
        "of the corpus and the cross-attention of the last layer. 0: alignments are not learned.",
    )
    word_level: float = setting(
        0.0,
        "Share, such as 0.5, of the loss that is the cross entropy with the probabilities of a larger model, the "
        "teacher: word-level distillation. 0: only the texts are learned.",
    )
    word_level_teacher: str | None = setting(
        None,
        "Run folder, or name of a preset, of that larger model. The new model gets its vocabulary.",
    )
    warmup_steps: int = setting(4000, "Updates until the peak of the learning rate, equation 3.")
    learning_rate: float | None = setting(None, "Peak of the learning rate, for another schedule than equation_3.")
    learning_rate_scale: float = setting(1.0, "Factor on the learning rate of equation 3.")
    final_learning_rate: float = setting(0.0, "Learning rate at the last update of the schedules linear and cosine.")
    fit_warmup: bool = setting(
        False,
        "Whether a budget of few steps or epochs shortens the warm-up to a quarter of its updates; the peak of the "
        "rate stays. The sizes ask for this, but not where warmup_steps or learning_rate_scale is given.",
    )
    optimizer: str = setting(
        "adam",
        "How gradients change the weights. adam: the paper's; adamw: with weight decay; adafactor: without momentum, "
        "and with a learning rate that is relative to the size of the weights.",
        OPTIMIZERS,
    )
    beta_1: float = setting(0.9, "beta_1 of Adam, section 5.3.")
    beta_2: float = setting(0.98, "beta_2 of Adam, section 5.3.")
    adam_epsilon: float = setting(1e-9, "Epsilon of Adam, section 5.3.")
    weight_decay: float = setting(
        0.0,
        "With adamw, an update makes weights smaller by this share times the learning rate; biases and the weights of "
        "norms stay.",
    )
    gradient_clip_norm: float | None = setting(
        None, "Largest norm of the gradient of an update over all weights; a longer gradient is scaled down to it."
    )
    gradient_accumulation_steps: int = setting(
        1, "Number of micro-batches of an update, which learns from the mean over all their tokens."
    )
    precision: str = setting(
        "auto",
        "Numbers to compute with. auto: mixed_bfloat16 where the machine multiplies it faster, else float32.",
        TRAINING_PRECISIONS,
    )
    rematerialize: bool = setting(
        False,
        "Whether training keeps only the inputs of each layer, and computes the rest again for the gradient: less "
        "memory for more time. Others call it gradient checkpointing.",
    )
    max_epochs: int | None = setting(
        None, "Budget in passes over the training pairs. The first budget that is spent ends the run.", panel="Stopping"
    )
    max_steps: int | None = setting(None, "Budget in updates of the weights.", panel="Stopping")
    max_minutes: float | None = setting(
        None, "Budget in minutes of training, those before a resume included.", panel="Stopping"
    )
    validation_steps: int | None = setting(
        None, "Updates between validations, by default an epoch, and at least 50 updates.", panel="Stopping"
    )
    monitor: str = setting(
        "loss",
        "The metric of a validation that decides which weights are best; bleu, chrf, ter and the error rates "
        "score translations.",
        MONITORS,
        "Stopping",
    )
    patience: int = setting(10, "Number of validations without improvement before the run stops.", panel="Stopping")
    least_improvement: float = setting(
        0.0,
        "Only a validation that is better than the last improvement by more than this, in the units of the monitor, is "
        "an improvement for patience. The best weights are those of the best validation in any case.",
        panel="Stopping",
    )
    scored_sources: int | None = setting(
        None,
        "Number of sources that each validation translates, by default 500 if the monitor scores translations, else 0.",
        panel="Stopping",
    )
    bleu_tokenizer: str | None = setting(
        None,
        "How BLEU splits texts into words, by sacreBLEU. By default 13a, but zh for Chinese and char for other scripts "
        "without blanks between words, by the validation targets.",
        BLEU_TOKENIZERS,
        "Stopping",
    )
    mask_whole_words: bool = setting(
        False, "Whether a masked language model hides all tokens of a word together, or each by itself."
    )
    ema_decay: float = setting(
        0.0, "Decay of the moving average of the weights, per update. 0: the weights are kept as trained."
    )
    keep_weights: int = setting(5, "Number of validations whose weights are kept, for an average (section 6.1).")
    checkpoint_minutes: float = setting(
        2.0, "Minutes between checkpoints; one is also written after every validation.", panel="Stopping"
    )
    seed: int = setting(1, "Seed of the first weights, the order of the batches, and dropout.")

    def __post_init__(self) -> None:
        self._check_types_and_choices()
        self._check_positive("vocab_size", "max_length", "tokens_per_batch", "warmup_steps", "learning_rate_scale")
        self._check_positive("adam_epsilon", "gradient_accumulation_steps", "patience")
        self._check_positive("learning_rate", "gradient_clip_norm")
        self._check_positive("batch_size_multiple")
        self._check_positive("max_epochs", "max_steps", "max_minutes", "validation_steps")
        self._check_positive("checkpoint_minutes")
        self._check_mixture()
        for name in ("keep_weights", "weight_decay", "least_improvement"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite. Received: {name}={getattr(self, name)}.")
        check_optimizer(self)
        check_schedule(self)
        for name in ("bpe_dropout", "label_smoothing", "beta_1", "beta_2", "ema_decay"):
            self._check_rate(name)
        if not 0 <= self.unigram_alpha < math.inf:
            raise ValueError(
                f"unigram_alpha must be a finite number of at least 0. Received: unigram_alpha={self.unigram_alpha}."
            )
        fewest = 1 if MONITORS[self.monitor].translations else 0
        if self.scored_sources is not None and self.scored_sources < fewest:
            raise ValueError(
                "scored_sources must be at least 0, and at least 1 if `monitor` scores translations. "
                f"Received: scored_sources={self.scored_sources}, monitor={self.monitor!r}. "
                "Leave it out for the default."
            )
        for name in ("r_drop", "guided_alignment"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(
                    f"{name} must be a finite number of at least 0. Received: {name}={getattr(self, name)}."
                )
        self._check_word_level()
        if self.tokens_of_pairs < self.max_length:
            twice = " twice, because r_drop reads it twice" if self.r_drop else ""
            raise ValueError(
                f"tokens_per_batch must hold at least one sentence of max_length tokens{twice}. "
                f"Received: tokens_per_batch={self.tokens_per_batch}, max_length={self.max_length}. "
                "Raise tokens_per_batch or lower max_length."
            )

    def _check_word_level(self) -> None:
        if not 0 <= self.word_level <= 1:
            raise ValueError(f"word_level must be from 0 to 1. Received: word_level={self.word_level}.")
        if bool(self.word_level) != (self.word_level_teacher is not None):
            raise ValueError(
                "word_level, the share of the loss that a teacher gives, and word_level_teacher, its run folder or "
                f"preset, go together. Received: word_level={self.word_level}, "
                f"word_level_teacher={self.word_level_teacher!r}. Give both, or leave both out."
            )
        others = [name for name in ("r_drop", "guided_alignment") if self.word_level and getattr(self, name)]
        if others:
            raise ValueError(
                f"word_level does not go with {' and '.join(others)}. Received: word_level={self.word_level}, "
                f"{', '.join(f'{name}={getattr(self, name)}' for name in others)}. Leave one of them out."
            )

    def _check_mixture(self) -> None:
        if not 1 <= self.corpus_temperature < math.inf:
            raise ValueError(
                f"corpus_temperature must be a finite number of at least 1. Received: {self.corpus_temperature}."
            )
        try:
            weights = self.weights
        except ValueError:
            weights = (math.nan,)
        if not all(0 < weight < math.inf for weight in weights):
            raise ValueError(
                "corpus_weights must be numbers above 0 with blanks between them, such as '1 3'. Received: "
                f"corpus_weights={self.corpus_weights!r}."
            )

    @property
    def tokens_of_pairs(self) -> int:
        """Rows times length for the pairs of a batch: half of `tokens_per_batch` with R-Drop, which reads them twice.

        Examples:
            >>> TrainingConfig(tokens_per_batch=1001).tokens_of_pairs
            1001
            >>> TrainingConfig(tokens_per_batch=1001, r_drop=5.0).tokens_of_pairs
            500
        """
        return self.tokens_per_batch // 2 if self.r_drop else self.tokens_per_batch

    @property
    def weights(self) -> tuple[float, ...]:
        """The numbers of `corpus_weights`.

        Examples:
            >>> TrainingConfig(corpus_weights="1 2.5").weights
            (1.0, 2.5)
        """
        return tuple(map(float, self.corpus_weights.split()))

    @property
    def samples_subwords(self) -> bool:
        """Whether training texts are divided into subwords anew each time that they are seen."""
        return any(getattr(self, field) for field in SAMPLING_FIELDS.values())

    @property
    def token_kinds(self) -> tuple[str, ...] | None:
        """The kinds of the tokens of both sides; None: files of the user's own decide them."""
        return (self.tokenizer,) if (self.source_tokenizer, self.target_tokenizer) == (None, None) else None

    @property
    def reads_symbols(self) -> bool:
        """Whether both sides are symbols, so that error rates score translations instead of BLEU and chrF."""
        return self.token_kinds == ("symbols",)

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
        """A copy with some fields changed, checked like a new one. A warm-up or a scale that is given is not fitted.

        A schedule that is given takes away the rate of the other kind: `learning_rate` if it is equation_3, and
        otherwise `learning_rate_scale`, which the sizes have.

        Examples:
            >>> small = TrainingConfig.of_size("small")
            >>> constant = small.replace(schedule="constant", learning_rate=0.001)
            >>> small.learning_rate_scale, constant.learning_rate_scale, constant.warmup_steps
            (1.2, 1.0, 800)
        """
        if "warmup_steps" in changes or "learning_rate_scale" in changes:
            changes = {"fit_warmup": False, **changes}
        if "schedule" in changes:
            changes = {**without_rate_of_other(changes["schedule"]), **changes}
        return super().replace(**changes)


def check_scores(task: str, monitor: str, scored_sources: int | None) -> None:
    """Refuses to score translations of a model that gives none; the arguments are fields of the configurations.

    Raises:
        ValueError: The monitor or `scored_sources` is a translator's.

    Examples:
        >>> check_scores("tag", monitor="accuracy", scored_sources=None)
    """
    if task_kind(task).targets != "text" and (MONITORS[monitor].translations or scored_sources):
        suitable = [name for name, monitor in MONITORS.items() if not monitor.translations]
        raise ValueError(
            f"A model of the task {task} gives no translations to score. Received: monitor={monitor!r}, "
            f"scored_sources={scored_sources}. Choose monitor from {', '.join(suitable)}, and leave "
            "scored_sources out."
        )


def check_subword_sampling(task: str, training: TrainingConfig, kinds: Collection[str] | None) -> None:
    """Refuses to divide texts anew where a task, or its tokens, cannot.

    Args:
        task: What the model learns.
        training: Its settings.
        kinds: The kinds of the tokens of both sides; None: they are not known yet.

    Raises:
        ValueError: A field is for tokens that the run does not have, or the task knows no sampling.

    Examples:
        >>> check_subword_sampling("translate", TrainingConfig(bpe_dropout=0.1), kinds=("bpe", "words"))
    """
    given = {kind: field for kind, field in SAMPLING_FIELDS.items() if getattr(training, field)}
    if given and not task_kind(task).samples_subwords:
        suitable = [name for name, known in TASKS.items() if known.samples_subwords]
        raise ValueError(
            f"{' and '.join(given.values())}: only the tasks {' and '.join(suitable)} divide texts into subwords anew. "
            f"Received: the task {task}. Leave it out."
        )
    for kind, field in given.items():
        if kinds is not None and kind not in kinds:
            others = [SAMPLING_FIELDS[other] for other in kinds if other in SAMPLING_FIELDS]
            remedy = f"Give {others[0]} in its place" if others else "Leave it out"
            raise ValueError(
                f"{field} is for {kind} subwords. Received: {field}={getattr(training, field)}, and tokens of the kind "
                f"{' and '.join(dict.fromkeys(kinds))}. {remedy}, or train with the tokenizer {kind}."
            )


def check_guided_alignment(task: str, training: TrainingConfig) -> None:
    """Refuses word alignments for a model without cross-attention, and beside what they cannot go with.

    Args:
        task: What the model learns.
        training: Its settings.

    Raises:
        ValueError: The task is not translation, or another field of `training` does not go with `guided_alignment`.

    Examples:
        >>> check_guided_alignment("translate", TrainingConfig(guided_alignment=0.1))
    """
    if not training.guided_alignment:
        return
    if not task_kind(task).has_cross_attention:
        suitable = [name for name, known in TASKS.items() if known.has_cross_attention]
        raise ValueError(
            "guided_alignment: only models with an attention from the target to the source learn alignments, those of "
            f"the task {' and '.join(suitable)}. Received: the task {task}. Leave it out."
        )
    others = [name for name in ("r_drop", *SAMPLING_FIELDS.values()) if getattr(training, name)]
    if others:
        raise ValueError(
            f"guided_alignment does not go with {' and '.join(others)}: pairs must be read once, and have their usual "
            f"subwords. Received: guided_alignment={training.guided_alignment}, "
            f"{', '.join(f'{name}={getattr(training, name)}' for name in others)}. Leave one of them out."
        )
    if training.max_length > LONGEST_ALIGNED:
        raise ValueError(
            f"guided_alignment is for texts of up to {LONGEST_ALIGNED:,} tokens. Received: "
            f"max_length={training.max_length}. Lower max_length."
        )


def check_aligned(training: TrainingConfig, is_aligned: bool) -> None:
    """Refuses to learn alignments of which there are none, and alignments that would not be learned.

    Args:
        training: The settings of a run.
        is_aligned: Whether its training pairs have word alignments.

    Raises:
        ValueError: There is one without the other.

    Examples:
        >>> check_aligned(TrainingConfig(guided_alignment=0.1), is_aligned=True)
    """
    if training.guided_alignment and not is_aligned:
        raise ValueError(
            f"guided_alignment={training.guided_alignment} learns word alignments, and the corpus has none. Give those "
            "of its training files (--alignments FILE; in Python kformer.data.AlignedFile), or leave out "
            "guided_alignment."
        )
    if is_aligned and not training.guided_alignment:
        raise ValueError(
            "The corpus has word alignments, and nothing would be learned from them, because guided_alignment is 0. "
            "Give it a weight, such as 0.1, or leave out the alignments."
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
