"""`kformer prepare`."""

from typing import Any

from kformer.cli.command_form import with_options
from kformer.cli.startup import start_tensorflow
from kformer.cli.train_config import FIELD_OPTIONS, StartOptions, new_configs, read_changes
from kformer.cli.train_corpus import CleaningOptions, CorpusOptions, warn_of_corpus
from kformer.data import PreparedCorpus


@with_options(FIELD_OPTIONS)
def prepare(corpus: CorpusOptions, cleaning: CleaningOptions, start: StartOptions, **fields: Any) -> None:
    """Read and tokenize the files of a corpus, so that `kformer train` begins at once.

    It takes the options of train that say what is learned, and does what train would do before its first update: it
    learns the vocabularies, and keeps the tokens on the disk, in --cache FOLDER. A command that was stopped goes on
    where it was. Runs of the same files, vocabulary and longest text open what is there, on all machines that share the
    folder.
    """
    transformer, training = new_configs(start, read_changes(start.config, fields))
    options = corpus.with_file(start.config)
    options.check_aligned(training)
    chosen = options.of_task(transformer.task, start.recipe, cleaning.rules)
    if not isinstance(chosen, PreparedCorpus):
        raise ValueError(
            "prepare is for files: --train PAIRS.tsv, or --train-source and --train-target. Received: "
            f"{chosen.name}. A corpus with a name, and what comes through a pipe, is held in memory by train."
        )
    warn_of_corpus(chosen, transformer.task)
    start_tensorflow()
    from kformer.training.new_run import prepare_run

    new = prepare_run(chosen, transformer, training, start.initialize_from)
    for part, pairs in zip(("train", "valid"), new.pairs, strict=True):
        print(f"{chosen.name_of(part)} {part}: {pairs.report()}")
    source, target = new.transformer.source_vocab_size, new.transformer.target_vocab_size
    print(f"The vocabularies have {source:,} source and {target:,} target tokens. All is in {chosen.cache}.")
