"""A run folder or an exported SavedModel as one function that answers batches of texts."""

import dataclasses
import functools
import itertools
import pathlib
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kformer.config import DecodingConfig, answer_outputs, task_kind
from kformer.inference.find import check_search, check_task, find_model, search_of
from kformer.process.forks import check_process
from kformer.runs.folder import RunFolder
from kformer.runtime.export_description import description
from kformer.runtime.signature_names import CUT, DEFAULT_SIGNATURE, DETAILED, MOSTLY_UNKNOWN, READING
from kformer.runtime.tensors import text_array
from kformer.text.batches import BATCH_SIZE, BatchSeeds, Hypothesis, hypotheses
from kformer.text.options import check_values, option_arrays, with_defaults
from kformer.text.word_alignment import with_alignments

if TYPE_CHECKING:
    from kformer.export.ctranslate2_engine import CTranslate2Engine
    from kformer.runtime.c_api import SavedModel

    Export = SavedModel | CTranslate2Engine

_KEPT_COPIES = 4  # loaded models of copies, for a process that gets a new copy with every batch


class _Loaded:
    """The SavedModel of a model and of its copies in this process, once it is loaded. A pickle has only the name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.Lock()
        self.saved_model: Export | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_copies, (self.name,)


@functools.lru_cache(_KEPT_COPIES)
def _of_copies(name: str) -> _Loaded:
    """What all copies of a model share that were unpickled in this process."""
    return _Loaded(name)


@dataclasses.dataclass(frozen=True)
class Model:
    """A trained model that answers batches of texts, without Python's TensorFlow.

    The constructor only looks at the folder. The first call loads the model: a SavedModel as it is, while a run
    folder's model is first saved as a SavedModel, which is kept (see `kformer.inference.saved_model_cache`). Several
    threads may call a model at the same time.

    A model can be pickled, for worker processes. A pickle has the path and the options, and no weights, so the folder
    must be there for the worker, too. The first copy that is called in a process loads the model, and later copies of
    the same model use what it has loaded. A process keeps the models of the last four for which it got copies.

    Args:
        path: A run folder, an export, or a folder of numbered SavedModel versions: the last one when the model is
            loaded.
        decoding: How a run folder's model searches; by default as the folder says (`RunFolder.decoding_config`).
            It must be None for an export, whose search is fixed.
        n_best: Hypotheses per text, at most the beam size.
        threads_per_operation: Threads that share one operation; None: as many as there are cores, which is best for
            one batch at a time. Where many batches are answered, 1 is best: `answer_all` then keeps every core
            busy with a batch of its own. The first model of a process decides for all, or Python's TensorFlow, if it
            computed something before.
        task: What the model must have learned. Another task's answers take the place of translations: labels with
            their probabilities, tags or continuations with their scores.
        on_unknown: Called for each text of which more than half is not in the vocabulary (`Tokenizer.fallback_ids`),
            by the thread that answers it. A SavedModel that `kformer export` made does not tell.
        on_cut: The same for each text whose end a classifier or tagger does not read.
        trust: Load a SavedModel whatever operations it has: see `kformer.runtime.c_api.SavedModel`.
        options: How a translator or a language model finds its answers: values by their names in
            `kformer.text.options.OPTIONS`, such as `{"temperature": 1.0, "seed": 7}`, which draws them at random. Those
            that are left out are the model's own. Every batch has its own seed: call the model for one batch at a time
            where the same seed is to draw the same texts again. A copy goes on with the seed that the model had when it
            was pickled.
        alignments: Give each translation the alignment of its words, `Hypothesis.alignment`. The model reads each text
            and its translation once more for it. An export needs the signature `translate_detailed`.
        signatures: Those that `run` is called with beside `serving_default`, such as `score`.

    Raises:
        FileNotFoundError: There is no model at `path`, or a run folder without weights. A copy raises this and the
            following errors when it is loaded.
        ValueError: `decoding` or `n_best` was given for an export, `n_best` exceeds the beam size, the model is of
            another task, it does not take the options, or it lacks alignments or a signature. When the model is loaded:
            a file of it is damaged, or a SavedModel could do more than compute.
        RuntimeError: A call in a process that was forked from one that had loaded a model.

    Examples:
        >>> model = Model(kformer.presets.find_preset("cmudict").path, n_best=2)
        >>> [[one.text for one in found] for found in model([b"h e l l o", b"w o r l d"])]
        [['HH EH L OW', 'HH EH L AE'], ['W ER L D', 'W UH R L D']]

        A pool of processes answers many batches:

        >>> with multiprocessing.get_context("spawn").Pool(2) as pool:  # doctest: +SKIP
        ...     answers = pool.map(model, batches)
    """

    path: str | pathlib.Path
    decoding: DecodingConfig | None = None
    _: dataclasses.KW_ONLY
    n_best: int = 1
    threads_per_operation: int | None = None
    task: str = "translate"
    on_unknown: Callable[[bytes], None] | None = None
    on_cut: Callable[[bytes], None] | None = None
    trust: bool = False
    options: Mapping[str, float | int] = dataclasses.field(default_factory=dict, hash=False)
    alignments: bool = False
    signatures: Sequence[str] = ()
    _inputs: dict[str, float | int] = dataclasses.field(init=False, repr=False, compare=False)
    _seeds: BatchSeeds = dataclasses.field(init=False, repr=False, compare=False)
    _loaded: _Loaded = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Absolute, because the folder is read later, perhaps in another working directory.
        if isinstance(self.signatures, str):
            raise ValueError(f"signatures must be a list of names. Received: {self.signatures!r}. Write a list.")
        for name in ("n_best", "threads_per_operation"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise ValueError(f"{name} must be 1 or more. Received: {number}.")
        path = pathlib.Path(self.path).absolute()
        vars(self).update(path=path, options=dict(self.options), signatures=tuple(self.signatures))
        search = search_of(self._find(), self.decoding)
        inputs = with_defaults(self.options, search) if self.options else {}
        seeds = BatchSeeds(int(inputs.get("seed", 0)))
        vars(self).update(_inputs=inputs, _seeds=seeds, _loaded=_Loaded(uuid.uuid4().hex))

    def __call__(self, texts: Sequence[bytes], seed: int | None = None) -> list[list[Hypothesis]]:
        """The hypotheses of each text, best first.

        Args:
            texts: UTF-8.
            seed: Of this batch, if its texts are drawn at random; by default the next one, see the class.

        Raises:
            ValueError: A text is not of the type bytes; or what the class says.
            SavedModelError: TensorFlow cannot compute the answers.
        """
        _check_texts(texts)
        saved_model = self._saved_model()
        if self.options:
            outputs = self._with_options(saved_model, texts, self._seeds.next(len(texts)) if seed is None else seed)
        elif self.alignments:
            outputs = saved_model.run(DETAILED, {"text": text_array(texts)})
        else:
            outputs = saved_model(texts)
        self._tell(saved_model, texts)
        found = hypotheses(*(outputs[name] for name in answer_outputs(self.task)))
        return with_alignments(found, texts, outputs) if self.alignments else found

    def _with_options(self, saved_model: "Export", texts: Sequence[bytes], seed: int) -> dict[str, np.ndarray]:
        inputs = option_arrays({**self._inputs, "seed": seed})
        if self.task == "translate":
            inputs |= {"target_prefix": text_array([b""]), "tag": text_array([b""])}  # texts begin with their tags
        return saved_model.run(self._signature, {"text": text_array(texts), **inputs})

    def run(self, signature: str, inputs: Mapping[str, np.ndarray | Sequence[bytes]]) -> dict[str, np.ndarray]:
        """The outputs of one of the model's signatures, see `kformer.runtime.c_api.SavedModel.run`.

        Texts may be a list of bytes in UTF-8. `on_unknown` and `on_cut` are not called.

        Raises:
            ValueError: A text of a list is not of the type bytes, or the signature has other inputs.
        """
        for values in inputs.values():
            if not isinstance(values, np.ndarray):
                _check_texts(values)
        arrays = {name: value if isinstance(value, np.ndarray) else text_array(value) for name, value in inputs.items()}
        return self._saved_model().run(signature, arrays)

    def load(self) -> Self:
        """Loads now what the first call would load. Gives the model itself."""
        self._saved_model()
        return self

    def prepare(self) -> Self:
        """Makes and keeps now the SavedModel of a run folder, for which Python's TensorFlow is needed.

        Then no worker process on this machine has to make it. Nothing is loaded, and an export needs nothing. Gives the
        model itself.
        """
        found = self._find()
        if isinstance(found, RunFolder):
            from kformer.inference.saved_model_cache import saved_model_of

            with saved_model_of(found, found.decoding_config(self.decoding), self.n_best, self._more_signatures):
                pass
        return self

    def _saved_model(self) -> "Export":
        check_process()  # before the lock, which another thread may have held when this process was forked
        with self._loaded.lock:
            if self._loaded.saved_model is None:
                from kformer.inference.load import load_saved_model

                given = self._find(), self.decoding, self.n_best, self.threads_per_operation, self.trust
                self._loaded.saved_model = load_saved_model(*given, self._more_signatures)
            return self._loaded.saved_model

    @property
    def _signature(self) -> str:
        """The signature that answers."""
        if self.alignments:
            return DETAILED
        return (task_kind(self.task).with_options if self.options else None) or DEFAULT_SIGNATURE

    @property
    def _more_signatures(self) -> list[str]:
        """What a run folder's SavedModel has beside `serving_default`."""
        return [*([self._signature] if self.options or self.alignments else []), *self.signatures]

    def _find(self) -> RunFolder | pathlib.Path:
        """What is at the path, if it does what the model is to do."""
        found = find_model(self.path)
        check_task(found, self.task)
        check_search(found, self.decoding, self.n_best)
        if self.options:
            self._check_options(found)
        if self.alignments:
            self._check_alignments(found)
        if not isinstance(found, RunFolder):
            self._check_signatures(found)
        return found

    def _check_options(self, found: RunFolder | pathlib.Path) -> None:
        signature = task_kind(self.task).with_options
        if signature is None or self.n_best != 1:
            raise ValueError(
                "Options are for a translator or a language model, which then gives one answer to each text. Received: "
                f"options with the task {self.task} and n_best={self.n_best}. Leave out the options, or change the "
                "others."
            )
        check_values(self.options)
        if isinstance(found, RunFolder):
            return
        described = description(found)
        if not described or described.get("format") == "ctranslate2":
            raise ValueError(
                f"{found} is for CTranslate2 or of another program, and takes no options of sampling. Name a run "
                f"folder, or what `kformer export --signature {signature}` makes of it."
            )
        known = described.get("signatures", [])
        if known and signature not in known:  # only an export lacks it, and lists what it has
            raise ValueError(f"{found} takes no options of sampling. Export it again with --signature {signature}.")

    def _check_alignments(self, found: RunFolder | pathlib.Path) -> None:
        if self.task != "translate" or self.n_best != 1 or self.options:
            raise ValueError(
                "Alignments are for one translation of each text, found by a search. Received: alignments=True with "
                f"task={self.task!r}, n_best={self.n_best}, options={self.options}. Leave out the alignments, or the "
                "others."
            )
        if isinstance(found, RunFolder):
            return
        known = description(found).get("signatures", [])
        if DETAILED not in known:
            raise ValueError(f"{found} gives no alignments. Export it again with --signature {DETAILED}.")

    def _check_signatures(self, export: pathlib.Path) -> None:
        described = description(export)
        if self.signatures and described.get("format") == "ctranslate2":
            raise ValueError(
                f"{export} is for CTranslate2, which has no signature {self.signatures[0]}. Name a run folder, or what "
                f"`kformer export --signature {self.signatures[0]}` makes of it."
            )
        for name in self.signatures:
            if name not in described.get("signatures", [name]):  # other programs list none
                raise ValueError(f"{export} has no signature {name}. Export it again with --signature {name}.")

    def _tell(self, saved_model: "Export", texts: Sequence[bytes]) -> None:
        """Calls `on_unknown` and `on_cut` for the texts that they are for, if the model can tell."""
        given = {MOSTLY_UNKNOWN: self.on_unknown, CUT: self.on_cut}
        wanted = {output: tell for output, tell in given.items() if tell is not None}
        if not wanted or READING not in saved_model.signatures:
            return
        found = saved_model.run(READING, {"text": text_array(texts)})
        for output, tell in wanted.items():
            for text in itertools.compress(texts, found[output]):
                tell(text)


def threads_for(texts: int) -> int | None:
    """The best `threads_per_operation` for `answer_all` of so many texts."""
    return 1 if texts > BATCH_SIZE else None


def _check_texts(texts: Sequence[object]) -> None:
    if strange := [text for text in texts if not isinstance(text, bytes)]:
        raise ValueError(
            f"Texts must be a list of bytes in UTF-8. Received in the list: {strange[0]!r} of the type "
            f"{type(strange[0]).__name__}. Write [text.encode()]."
        )
