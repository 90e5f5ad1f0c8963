"""The start of a run: a new run folder with tokenizers and configurations."""

import functools
import pathlib
import shutil
from typing import Any, NamedTuple

from kformer.config import (
    MONITORS,
    DecodingConfig,
    TrainingConfig,
    TransformerConfig,
    check_aligned,
    check_first_weights,
    check_guided_alignment,
    check_layers,
    check_positions,
    check_scores,
    check_special_ids,
    check_subword_sampling,
    task_kind,
)
from kformer.config.decoding import FROM_DATA
from kformer.data import Corpus, EncodedPairs
from kformer.data.corpus import sample_sources
from kformer.data.label_checks import check_corpus
from kformer.data.mixture import passes_of
from kformer.data.vocabularies import own_tokenizers
from kformer.evaluation.bleu_tokenizers import bleu_metric
from kformer.files.checksums import check_file
from kformer.presets import find_preset
from kformer.runs.create import create_run, derived_run
from kformer.runs.environment import describe_environment
from kformer.runs.folder import RunFolder
from kformer.tasks import task_of
from kformer.tokenizers import Tokenizer, load_tokenizers
from kformer.tokenizers.base import ids_of_words
from kformer.tokenizers.text_ops import string_tensor
from kformer.training.plan import fit_warmup
from kformer.training.pretrained_embeddings import (
    Sides,
    describe_embeddings,
    find_embeddings,
    fit_to_vectors,
    read_embeddings,
    save_embeddings,
)
from kformer.training.run_setup import (
    FROM_TOKENIZERS,
    OWN_TOKENIZERS,
    RunSetup,
    changed_fields,
    complete_training_config,
    decided_by_data,
    describe_corpus,
    encode,
    pairs_of_vocabulary,
)
from kformer.training.text_lengths import search_of_data
from kformer.training.word_level_teacher import check_vocabulary, check_word_level_teacher

KEPT_SAMPLES = 16  # validation sources that are kept, to try an export on them


class NewRun(NamedTuple):
    """What a run begins with.

    Attributes:
        transformer, training: Its configurations, fitted to the corpus.
        tokenizers: Of the source and of the target.
        pairs: The ids of the training and of the validation part.
        origin: The run whose weights it begins with, if any.
        teacher: The run whose model's probabilities it learns, if any.
        search: How its model is searched.
        vectors: Pretrained vectors of words.
        description: Facts about the corpus.
    """

    transformer: TransformerConfig
    training: TrainingConfig
    tokenizers: tuple[Tokenizer, Tokenizer]
    pairs: tuple[EncodedPairs, EncodedPairs]
    origin: RunFolder | None
    teacher: RunFolder | None
    search: DecodingConfig
    vectors: Sides
    description: dict[str, Any]


def prepare_run(
    corpus: Corpus,
    transformer: TransformerConfig | None,
    training: TrainingConfig,
    initialize_from: str | pathlib.Path | None = None,
    decoding: DecodingConfig | None = None,
) -> NewRun:
    """Checks what a run is asked for, learns the tokenizers, and encodes the corpus. No run folder is needed for it.

    The tokenizers are trained on the corpus. With `initialize_from`, the tokenizers and the transformer of the earlier
    run are taken instead, and with a word-level teacher its tokenizers. `decoding` is the model's default search.
    """
    _check_parts(corpus)
    origin = None if initialize_from is None else find_preset(initialize_from)
    teacher = None if training.word_level_teacher is None else find_preset(training.word_level_teacher)
    known = origin or teacher  # the run whose tokenizers are kept
    if transformer is None:
        transformer = TransformerConfig.of_size("small") if origin is None else origin.transformer_config()
    check_corpus(transformer.task, corpus)
    check_scores(transformer.task, training.monitor, training.scored_sources)
    if teacher is not None:
        check_word_level_teacher(teacher, transformer.task, training)
    _check_tokenizers(training, transformer.task, known)
    training = complete_training_config(training, corpus, known)
    _check_monitor(training, corpus)
    _check_subword_sampling(training, transformer.task, known)
    check_guided_alignment(transformer.task, training)
    _check_use_of_tags(corpus, transformer.task, training)
    passes_of([part.train for part in corpus.parts], training.weights, training.corpus_temperature)  # or an error
    facts = corpus.facts()
    check_aligned(training, facts.aligned > 0)
    description = describe_corpus(corpus, facts, training)
    task = task_of(transformer.task)
    pairs_to_learn = pairs_of_vocabulary(task.pairs(corpus.train), corpus, training)
    vectors = read_embeddings(transformer.task, training, has_initial_weights=origin is not None)
    if origin is None:
        check_layers(transformer)
    else:
        check_first_weights(transformer.task, origin.transformer_config().task)
        transformer = _transformer_of_weights(origin, transformer)
        description["initialize_from"] = str(initialize_from)
    if known is None:
        learn = functools.partial(task.train_tokenizers, pairs_to_learn, training)
        tokenizers = corpus.learned_tokenizers(task.name, training, learn)
    else:
        kept = load_tokenizers(known.tokenizer_folder)
        _check_ids(known, *kept)
        tokenizers = task.keep_tokenizers(kept, known.transformer_config().task, pairs_to_learn)
        description["symbols"] = known.corpus()["symbols"]
    if teacher is not None:
        check_vocabulary(teacher, tokenizers)
    transformer = fit_to_vectors(_fit_to_tokenizers(task.adapt(transformer), *tokenizers), vectors)
    _check_tags(corpus, training, tokenizers)
    check_special_ids(transformer)
    check_positions(transformer, training)
    pairs = encode(corpus, task, training, tokenizers)
    search = search_of_data(transformer.task, facts.short_ratio, pairs[0])
    search = search.replace(tags=" ".join(corpus.tags), untagged=corpus.untagged, tags_before=training.tags_before)
    if origin is not None:
        search = _read_by_weights(search, origin.decoding_config())
    if decoding is not None:
        search = _of_data(decoding, search)
    return NewRun(transformer, training, tokenizers, pairs, origin, teacher, search, vectors, description)


def start_run(
    run: RunFolder,
    corpus: Corpus,
    transformer: TransformerConfig | None,
    training: TrainingConfig,
    initialize_from: str | pathlib.Path | None = None,
    decoding: DecodingConfig | None = None,
) -> RunSetup:
    """Writes what a new run needs into its folder: configurations, tokenizers, and an earlier run's weights, if any.

    Nothing is written before everything has been checked. The warm-up is fitted to the budget, if the configuration
    asks for it. Arguments as of `prepare_run`.
    """
    run.check_new()
    _check_own_folders(run, initialize_from, training.word_level_teacher)
    new = prepare_run(corpus, transformer, training, initialize_from, decoding)
    transformer, tokenizers, origin = new.transformer, new.tokenizers, new.origin
    arrangement = task_of(transformer.task).training_arrangement(tokenizers, new.training)
    training = fit_warmup(new.training, new.pairs[0], arrangement)
    found = find_embeddings(transformer, new.vectors, tokenizers)
    run.path.mkdir(parents=True, exist_ok=True)
    _remove_first_weights(run)
    if origin is not None:
        _copy_model(origin, run.initial)
    if new.teacher is not None:
        _copy_model(new.teacher, run.word_level_teacher)
    if found:
        save_embeddings(run, found)
        new.description.update(describe_embeddings(transformer, found, new.pairs[0]))
    create_run(
        run,
        transformer,
        tokenizers,
        new.search,
        new.description,
        training=training,
        samples=sample_sources(corpus.valid, KEPT_SAMPLES),
        environment=describe_environment(),
    )
    return RunSetup(transformer, training, tokenizers, *new.pairs, resumed=False)


def _check_parts(corpus: Corpus) -> None:
    """Refuses a corpus that has nothing to train or to validate on."""
    for part in ("train", "valid"):
        if not getattr(corpus, part):
            raise ValueError(
                f"The corpus {corpus.name_of(part)!r} has no {part} pairs. Training needs pairs to learn from "
                "(train) and pairs that decide the best weights (valid)."
            )


def _check_use_of_tags(corpus: Corpus, task: str, training: TrainingConfig) -> None:
    """Refuses tags that no model would use, and a place for tags where there are none."""
    if corpus.tags and task_kind(task).targets != "text":
        raise ValueError(f"Tags are for translators. Received: {', '.join(corpus.tags)} with the task {task}.")
    if not corpus.tags and training.tags_before == "target":
        raise ValueError(
            "tags_before='target' says where the tags of corpora stand. Received: a corpus without tags. Give each "
            "corpus a tag (--tag), or leave it out."
        )


def _check_tags(corpus: Corpus, training: TrainingConfig, tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    """Refuses tags that the model could not tell from each other."""
    if training.tags_before == "target":
        ids_of_words(tokenizers[1], corpus.tags)
        return
    tokenizer = tokenizers[0]
    readable = tokenizer.tokenize(string_tensor(corpus.tags))
    others = {tokenizer.unknown_id, *tokenizer.fallback_ids()}
    if lost := [tag for tag, ids in zip(corpus.tags, readable.to_list(), strict=True) if others & {*ids}]:
        raise ValueError(
            f"The vocabulary of the sources has no token for {', '.join(lost)}. Choose tags that it has, or let the "
            "run learn its own vocabulary."
        )


def _check_monitor(training: TrainingConfig, corpus: Corpus) -> None:
    symbols = training.reads_symbols
    if not MONITORS[training.monitor].suits(symbols):
        suitable = [name for name, monitor in MONITORS.items() if monitor.suits(symbols)]
        kind = "symbols" if symbols else "sentences"
        raise ValueError(
            f"The corpus {corpus.name!r}, of {kind}, is scored by {', '.join(suitable)}. Received: "
            f"monitor={training.monitor!r}. Choose one of those."
        )
    if training.bleu_tokenizer is not None:
        bleu_metric(training.bleu_tokenizer)


def _check_tokenizers(training: TrainingConfig, task: str, origin: RunFolder | None) -> None:
    """Refuses tokenizers of the user's own that the run would not use."""
    given = [name for name in OWN_TOKENIZERS if getattr(training, name)]
    if given and origin is not None:
        raise ValueError(
            "A run that begins with another run's weights, or learns the probabilities of another run's model, has the "
            f"tokenizers of that run. Received: {', '.join(given)} as well. Leave them out, or initialize_from and "
            "word_level_teacher."
        )
    if training.target_tokenizer is not None and task_kind(task).targets != "text":
        raise ValueError(
            f"target_tokenizer is for translators. Received: the task {task}. Give the model as source_tokenizer."
        )


def _check_subword_sampling(training: TrainingConfig, task: str, origin: RunFolder | None) -> None:
    """Refuses to divide texts anew with tokens that cannot be, as far as they are known before they are learned."""
    if training.samples_subwords:
        known = own_tokenizers(training) if origin is None else load_tokenizers(origin.tokenizer_folder)
        kinds = [training.tokenizer if tokenizer is None else _kind_of(tokenizer) for tokenizer in known]
        check_subword_sampling(task, training, kinds)


def _kind_of(tokenizer: Tokenizer) -> str:
    subwords = tokenizer.subwords()
    return tokenizer.kind if subwords is None else subwords.kind


def _fit_to_tokenizers(transformer: TransformerConfig, source: Tokenizer, target: Tokenizer) -> TransformerConfig:
    """The configuration with the sizes of the vocabularies, the special ids, and as much weight tying as possible."""
    tying = transformer.embedding_tying
    special = source if task_kind(transformer.task).has_labels else target  # labels have no special ids in a text
    return transformer.replace(
        source_vocab_size=source.vocab_size,
        target_vocab_size=target.vocab_size,
        embedding_tying="target" if tying == "all" and not source.has_ids_of(target) else tying,
        pad_id=special.pad_id,
        start_id=special.start_id,
        end_id=special.end_id,
    )


def _transformer_of_weights(origin: RunFolder, given: TransformerConfig) -> TransformerConfig:
    """The configuration of the weights in `origin` with the given task; any other difference is an error."""
    stored = origin.transformer_config().replace(task=given.task)
    if changed := changed_fields(stored, given, decided_by_data(origin, given)):
        raise ValueError(
            "A run that begins with another run's weights keeps that run's transformer. Received values that differ "
            f"from the run in {origin.path}: {changed}. Leave them out, or train a new model."
        )
    return stored


def _read_by_weights(search: DecodingConfig, earlier: DecodingConfig) -> DecodingConfig:
    """The earlier run's search, which lets the model read as much at once as that run's model has learned to read.

    Lines are divided into sentences as the new run's texts say, because its model learns to translate such lines.
    """
    longest = max(search.longest_source, earlier.max_source_length or 0, earlier.max_sentence_length or 0)
    name = "max_source_length" if search.max_sentence_length is None else "max_sentence_length"
    return _of_data(earlier, search.replace(**{name: longest}))


def _of_data(search: DecodingConfig, data: DecodingConfig) -> DecodingConfig:
    """The search, with the lengths and tags of the training texts that `data` knows."""
    return search.replace(**{field: getattr(data, field) for field in FROM_DATA})


def _check_ids(origin: RunFolder, source: Tokenizer, target: Tokenizer) -> None:
    """Refuses a model from elsewhere whose ids are not those of its tokenizers: it would learn with other ids."""
    stored = origin.transformer_config()
    own = {name: getattr(stored, name) for name in FROM_TOKENIZERS}
    fitted = {name: getattr(_fit_to_tokenizers(stored, source, target), name) for name in FROM_TOKENIZERS}
    if differing := [f"{name}={own[name]} ({fitted[name]})" for name in own if own[name] != fitted[name]]:
        raise ValueError(
            f"The model in {origin.path} has other ids than its tokenizers, so it cannot be trained further. Received: "
            f"{', '.join(differing)}, those of the tokenizers in brackets. Make the run folder with ids that agree."
        )


def _check_own_folders(run: RunFolder, initialize_from: str | pathlib.Path | None, teacher: str | None) -> None:
    """Refuses a run where a folder that it would write is a run of the user's own."""
    for own, origin in zip(run.copied_runs(), (initialize_from, teacher), strict=True):
        of_user = (own.checkpoint_file, own.log_file, own.weights_folder)
        is_origin = origin is not None and own.path.resolve() == pathlib.Path(origin).resolve()
        if own.exists() and (is_origin or any(path.exists() for path in of_user)):
            raise FileExistsError(
                f"{own.path} holds a run, and a run in {run.path} would keep a copy of another run there. Choose "
                "another folder, such as one beside it."
            )


def _remove_first_weights(run: RunFolder) -> None:
    """Removes what a run left here that was killed at its start."""
    for copy in run.copied_runs():
        if copy.exists():  # what others keep in a folder of this name stays
            shutil.rmtree(copy.path)
    run.embeddings_file.unlink(missing_ok=True)


def _copy_model(origin: RunFolder, output: RunFolder) -> None:
    """Copies what a run needs of another one: the run with its first weights, or with its teacher."""
    check_file(origin.weights_file(), origin.kept_weights_remedy())
    with derived_run(origin, output.path) as copy:
        shutil.copy(origin.weights_file(), copy.path)
