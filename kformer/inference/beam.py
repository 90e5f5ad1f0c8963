"""A model as a transform of Apache Beam. This needs Beam: pip install 'kformer[beam]'."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from kformer.inference.model import Model
from kformer.text.batches import Hypothesis, answer_all

try:
    import apache_beam
    from apache_beam.ml.inference.base import KeyedModelHandler, ModelHandler, RunInference
except ImportError as error:
    raise ImportError("kformer.inference.beam needs Apache Beam. Run: pip install 'kformer[beam]'") from error

TEXTS_AT_ONCE = 1024  # texts that are sorted by length together
_Key = TypeVar("_Key")


class Answer(apache_beam.PTransform):
    """From pairs of a key and a text to pairs of the key and the answers to the text, best first.

    Beam keeps no order: a key such as the number of the line says where an answer belongs. The threads of a worker
    process share one model, which runs through TensorFlow's C library with one thread for each batch.

    Args:
        model: What answers, of any task. A run folder's model is first made into a SavedModel, which is kept on this
            machine. For workers on other machines, name an export that they find under the same path.
        texts_at_once: Texts that a worker answers at once, in batches of similar length. At the end of a bundle there
            may be fewer.

    Raises:
        ValueError: `texts_at_once` is below 1. In a worker: what came is no text.

    Examples:
        >>> model = Model(kformer.presets.find_preset("cmudict").path)
        >>> with apache_beam.Pipeline(runner="FnApiRunner") as pipeline:
        ...     lines = pipeline | apache_beam.Create([(0, "h e l l o")])
        ...     answers = lines | Answer(model)
        ...     _ = answers | apache_beam.MapTuple(lambda line, found: print(line, found[0].text))
        0 HH EH L OW
    """

    def __init__(self, model: Model, texts_at_once: int = TEXTS_AT_ONCE) -> None:
        super().__init__()
        if texts_at_once < 1:
            raise ValueError(f"There must be at least one text at once. Received: texts_at_once={texts_at_once}.")
        self._handler = Handler(model.prepare(), texts_at_once)

    def expand(self, pairs: Any) -> Any:
        """Beam calls this when the transform is applied."""
        return pairs | RunInference(KeyedModelHandler(self._handler))


class Handler(ModelHandler[str, list[Hypothesis], Model]):
    """The model as `RunInference` of Beam takes it, for texts without keys.

    Args:
        model, texts_at_once: See `Answer`.

    Examples:
        `texts | RunInference(Handler(model))` gives the answers to each text, best first.
    """

    def __init__(self, model: Model, texts_at_once: int = TEXTS_AT_ONCE) -> None:
        # One size, because Beam would try several ones to find the fastest.
        super().__init__(min_batch_size=texts_at_once, max_batch_size=texts_at_once)
        self._model = dataclasses.replace(model, threads_per_operation=1)

    def load_model(self) -> Model:
        """The loaded model. Beam calls this once in a process."""
        return self._model.load()

    def run_inference(
        self, batch: Sequence[str], model: Model, inference_args: dict[str, Any] | None = None
    ) -> Iterable[list[Hypothesis]]:
        """The answers to each text."""
        for text in batch:
            if not isinstance(text, str):
                raise ValueError(
                    f"A text is {text!r}, of the type {type(text).__name__}. Expected: pairs of a key and a str."
                )
        return answer_all(model, [text.encode("utf-8") for text in batch], at_once=1)
