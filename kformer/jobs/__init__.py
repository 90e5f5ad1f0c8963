"""Jobs: files of any number of lines, answered by processes or servers, into a folder that survives any kill."""

from kformer.jobs.distillation import distilled_corpus
from kformer.jobs.run import JobReport, run_job
from kformer.jobs.settings import JobSettings

__all__ = ["JobReport", "JobSettings", "distilled_corpus", "run_job"]
