"""What a model can learn to do: one small class for each task.

A task says how texts become batches, what the model is, and what a trained model answers. Training, evaluation, export
and the command line ask the task, so that a new task is one class here, and its name in `kformer.config.TASKS`.
"""

from kformer.tasks.base import Task, task_of, task_of_run
from kformer.tasks.classify import Classifier
from kformer.tasks.language_model import LanguageModel
from kformer.tasks.tag import Tagger

__all__ = ["Classifier", "LanguageModel", "Tagger", "Task", "task_of", "task_of_run"]
