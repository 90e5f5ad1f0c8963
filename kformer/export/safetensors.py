"""A trained model as a folder of Hugging Face: model.safetensors, configuration and tokenizer for transformers."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from kformer.config import task_kind
from kformer.export.formats import check_format
from kformer.export.hugging_face import HuggingFaceModel
from kformer.export.hugging_face_bert import BertModel
from kformer.export.hugging_face_gpt2 import GPT2Model
from kformer.export.hugging_face_marian import MarianModel
from kformer.export.target import ExportTarget, Trial, export, write_errors_explained
from kformer.export.variables import copy_weights
from kformer.files.writing import write_json
from kformer.importing.formats import IMPORT_FORMATS
from kformer.importing.imported_model import ImportedModel
from kformer.importing.run import read_folder
from kformer.importing.safetensors_file import write_checkpoint
from kformer.tasks.predictor import Predictor
from kformer.tokenizers.base import NUM_SPECIAL_IDS

_KINDS: dict[str, type[HuggingFaceModel]] = {
    "translate": MarianModel,
    "classify": BertModel,
    "tag": BertModel,
    "masked-language-model": BertModel,
    "language-model": GPT2Model,
}
_TOLERANCE = 1e-4  # of logits, as a share of the largest one if that is above 1
_README = """# A {name} of transformers

Made by kformer, from a model of the task {task}. `assets.extra/MODEL_CARD.md` says what it was trained on.

```python
import transformers
tokenizer = transformers.AutoTokenizer.from_pretrained(".")
model = transformers.{name}.from_pretrained(".")
```
"""


def export_safetensors(
    predictor: Predictor, directory: str | pathlib.Path, samples: Sequence[str] = ()
) -> pathlib.Path:
    """Writes a folder that Hugging Face's transformers loads, and reads it back. It does not need transformers.

    A `Translator` becomes a MarianMTModel, a `Classifier` a BertForSequenceClassification, a `Tagger` a
    BertForTokenClassification, a `MaskedLanguageModel` a BertForMaskedLM, and a `LanguageModel` a GPT2LMHeadModel.

    Args:
        predictor: What to export.
        directory: The folder to make.
        samples: Texts for which ids and logits are compared; by default as in `export_saved_model`.

    Returns:
        The folder.

    Raises:
        FileExistsError: The folder exists.
        ValueError: The class of transformers lacks a part of the model or of its tokenizer, or the folder, read back,
            is another model.

    Examples:
        >>> export_safetensors(kformer.Translator.from_preset("bible-en-es"), "exported/bible-en-es-hf")
        PosixPath('exported/bible-en-es-hf')
    """
    return export(predictor, directory, SafetensorsTarget(), samples=samples)


@dataclasses.dataclass(frozen=True)
class SafetensorsTarget(ExportTarget):
    """A folder of Hugging Face; see `export_safetensors`.

    Examples:
        >>> SafetensorsTarget().name
        'safetensors'
    """

    name = "safetensors"
    versioned = False
    precision: str = "float32"

    def check_options(self, predictor: Predictor) -> None:
        """See `ExportTarget.check_options`."""
        check_format(self.name, self.precision)
        _KINDS[predictor.task](predictor).check()

    def write(self, predictor: Predictor, folder: pathlib.Path, texts: Sequence[str], base: pathlib.Path) -> None:
        """See `ExportTarget.write`."""
        kind = _KINDS[predictor.task](predictor)
        common = {"architectures": [kind.class_name], "model_type": kind.format, "dtype": self.precision}
        with write_errors_explained(base):
            write_checkpoint(folder, kind.tensors(_weights(kind, _plain_model(predictor))))
            write_json(folder / "config.json", {**common, **kind.fields()})
            search = kind.search()
            if search is not None:
                write_json(folder / "generation_config.json", search)
            kind.write_tokenizer(folder)
            (folder / "README.md").write_text(_readme(kind), encoding="utf-8")

    def check(self, predictor: Predictor, folder: pathlib.Path, texts: Sequence[str], base: pathlib.Path) -> Trial:
        """See `ExportTarget.check`. kformer's own import reads the folder."""
        kind, model = _KINDS[predictor.task](predictor), _plain_model(predictor)
        imported = read_folder(folder, IMPORT_FORMATS[kind.format])
        again = imported.build("float32")
        _check_weights(_weights(kind, model), {weight.path: np.asarray(weight) for weight in again.weights})
        _check_ids(predictor, imported, texts)
        difference = _check_logits(predictor, model, again, texts)
        facts = {"precision": self.precision, "class": kind.class_name, "logit_difference": difference}
        return Trial({**facts, "samples": len(texts)}, 0.0)


def _plain_model(predictor: Predictor) -> keras.Model:
    """The model in float32, without adapters."""
    model = predictor.build("float32")
    copy_weights(predictor.model, model)
    return model


def _weights(kind: HuggingFaceModel, model: keras.Model) -> Mapping[str, np.ndarray]:
    return kind.arranged({weight.path: np.asarray(weight) for weight in model.weights})


def _readme(kind: HuggingFaceModel) -> str:
    licence = kind.predictor.facts.get("licence")
    heading = f"---\nlicense: {licence}\n---\n\n" if licence else ""
    return heading + _README.format(name=kind.class_name, task=kind.predictor.task)


def _check_weights(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
    """Refuses weights that differ. A bias that is missing is 0, and the special ids are no labels.

    Raises:
        ValueError: A weight differs.
    """
    for path in sorted({*expected, *found}):
        start = NUM_SPECIAL_IDS if path.startswith("classes/") else 0
        one, other = (weights.get(path, np.zeros(1))[..., start:] for weights in (expected, found))
        if not np.all(one == other):
            raise _differs(f"the weight {path} has other numbers")


def _check_ids(predictor: Predictor, imported: ImportedModel, texts: Sequence[str]) -> None:
    """Refuses tokenizers that give texts other ids.

    Raises:
        ValueError: An id differs.
    """
    own = (predictor.source_tokenizer, predictor.target_tokenizer)
    for mine, other in zip(own, imported.tokenizers, strict=True):
        plain = mine.normalize(tf.constant(list(texts)))  # transformers does not bring texts into the form NFC
        if mine.tokenize(plain).to_list() != other.tokenize(plain).to_list():
            raise _differs("its tokenizer gives the sample texts other ids")


def _check_logits(predictor: Predictor, model: keras.Model, again: keras.Model, texts: Sequence[str]) -> float:
    """The largest difference of a logit.

    Raises:
        ValueError: It is more than other sums explain.
    """
    start = NUM_SPECIAL_IDS if task_kind(predictor.task).has_labels else 0
    inputs = predictor.calibration_inputs(tf.constant(list(texts)))
    expected, found = (np.asarray(one(inputs, training=False))[..., start:] for one in (model, again))
    difference = float(np.abs(expected - found).max(initial=0.0))
    if not difference <= _TOLERANCE * max(1.0, float(np.abs(expected).max(initial=0.0))):  # also refuses NaN
        raise _differs(f"its logits differ by up to {difference:.2g}")
    return difference


def _differs(reason: str) -> ValueError:
    return ValueError(
        f"The folder, read back, is another model: {reason}. No incomplete export remains. Export it as a SavedModel."
    )
