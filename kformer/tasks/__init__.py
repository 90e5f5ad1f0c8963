"""What a model can learn to do: one small class for each task.

A task says how texts become batches, which parts its model has, and what a trained model answers. Training and export
ask the task. `docs/tasks.md` says what a new task needs: its description in `kformer.config.TASKS`, and a class.
"""

from kformer.tasks.base import Task, task_of, task_of_run
from kformer.tasks.classify import Classifier
from kformer.tasks.language_model import LanguageModel
from kformer.tasks.masked_language_model import MaskedLanguageModel
from kformer.tasks.tag import Tagger

__all__ = ["Classifier", "LanguageModel", "MaskedLanguageModel", "Tagger", "Task", "task_of", "task_of_run"]
