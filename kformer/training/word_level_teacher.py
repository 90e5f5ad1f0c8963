"""The teacher of word-level distillation: a model whose probabilities a run learns, see `models.WithTeacher`."""

import keras

from kformer.config import TrainingConfig, check_positions
from kformer.models import build_model
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights
from kformer.tokenizers import Tokenizer, load_tokenizers
from kformer.tokenizers.storage import fingerprint_of


def check_word_level_teacher(teacher: RunFolder, task: str, training: TrainingConfig) -> None:
    """Refuses a teacher that cannot predict what the new model learns.

    Raises:
        ValueError: It has learned another task, or has fewer positions than the longest texts have tokens.
    """
    teacher.check_task(task)
    check_positions(teacher.transformer_config(), training)


def check_vocabulary(teacher: RunFolder, tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    """Refuses a teacher that gives probabilities to other tokens than the new model.

    Raises:
        ValueError: Its tokenizers are not these.
    """
    own = load_tokenizers(teacher.tokenizer_folder)
    if [*map(fingerprint_of, own)] != [*map(fingerprint_of, tokenizers)]:
        raise ValueError(
            f"The teacher in {teacher.path} and the new model must have one vocabulary. Received: others, because the "
            "model begins with the weights of another run, or because the corpus has labels that the teacher does not "
            "know. Leave out initialize_from, or train a teacher for these texts."
        )


def load_teacher(teacher: RunFolder, precision: str) -> keras.Model:
    """The teacher's model, which does not learn.

    Args:
        teacher: Its run folder.
        precision: Of the training, such as "mixed_bfloat16".

    Raises:
        DamagedFileError: The weights were damaged.
    """
    model = build_model(teacher.transformer_config(), dtype=precision)
    load_weights(teacher, model)
    model.trainable = False
    return model
