"""Translators of OpenNMT-tf 2 (Klein et al. 2020): the folder of a run, with the YAML file that it was trained by."""

import ast
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from kformer.config import DecodingConfig, TransformerConfig, read_mapping
from kformer.importing.checkpoint import Checkpoint, CheckpointError
from kformer.importing.imported_model import ImportedModel, Source, same
from kformer.importing.pieces import read_lines
from kformer.tokenizers import PieceVocabularyTokenizer

_SINUSOIDS = "opennmt.layers.SinusoidalPositionEncoder"
# The arguments of opennmt.models.Transformer, and those of the models in its catalogue.
_DEFAULTS: dict[str, Any] = {
    "num_layers": 6,
    "num_units": 512,
    "num_heads": 8,
    "ffn_inner_dim": 2048,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "ffn_dropout": 0.1,
    "mha_bias": True,
    "pre_norm": True,
    "maximum_relative_position": None,
    "position_encoder_class": _SINUSOIDS,
}
_BIG = {"num_units": 1024, "num_heads": 16, "ffn_inner_dim": 4096}
_RELATIVE = {"maximum_relative_position": 20, "position_encoder_class": None}
_CATALOGUE: dict[str, dict[str, Any]] = {
    "Transformer": {},
    "TransformerBase": {},
    "TransformerBaseSharedEmbeddings": {},
    "TransformerRelative": _RELATIVE,
    "TransformerBaseRelative": _RELATIVE,
    "TransformerBig": _BIG,
    "TransformerBigSharedEmbeddings": _BIG,
    "TransformerBigRelative": _BIG | _RELATIVE,
    "TransformerTiny": {"num_layers": 2, "num_units": 64, "num_heads": 2, "ffn_inner_dim": 64},
}
_NOT_NUMBERS = ("share_embeddings", "attention_reduction", "output_layer_bias")  # the tensors say what these say
_BLANK, _START, _END = "<blank>", "<s>", "</s>"
# Parameters of a tokenizer that leave the tokens to SentencePiece; and those of sampling, which is for training alone.
_OF_SENTENCEPIECE = {"type", "model", "sp_model_path", "mode", "no_substitution", "spacer_annotate"}
_OF_SUBWORD_SAMPLING = {"nbest_size", "alpha", "sp_nbest_size", "sp_alpha"}
_OF_NO_SAMPLING = {"sampling_topk": 1, "sampling_temperature": 1}
_LONGEST = 250  # maximum_decoding_length
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_PROJECTIONS = {"query": "queries", "key": "keys", "value": "values", "output": "output"}
_SOURCE, _TARGET = "examples_inputter/features_inputter/embedding", "examples_inputter/labels_inputter/embedding"
_SOFTMAX = "decoder/output_layer/kernel"


class TensorFlowCheckpoint(Checkpoint):
    """The variables of a model in a checkpoint of TensorFlow, without those of its optimizer.

    Args:
        folder: With the file `checkpoint`, which names the last one.

    Raises:
        FileNotFoundError: There is no checkpoint.
        CheckpointError: It is damaged.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        last = tf.train.latest_checkpoint(str(folder))
        if last is None:
            raise FileNotFoundError(f"{folder} has no checkpoint. Name a run that has been trained.")
        try:
            self._reader = tf.train.load_checkpoint(last)
            shapes = self._reader.get_variable_to_shape_map()
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"{last} is damaged: {str(error).splitlines()[0]}. Copy it again.") from error
        prefix = "model/"
        self._shapes = {
            name.removeprefix(prefix).removesuffix(_VALUE): tuple(shape)
            for name, shape in shapes.items()
            if name.startswith(prefix) and name.endswith(_VALUE) and ".OPTIMIZER_SLOT" not in name
        }

    def names(self) -> Collection[str]:
        return self._shapes.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def read(self, name: str) -> np.ndarray:
        try:
            return np.asarray(self._reader.get_tensor(f"model/{name}{_VALUE}"), "float32")
        except tf.errors.OpError as error:
            raise CheckpointError(f"{name} cannot be read: {error.message}. Copy the checkpoint again.") from error


def read(file: pathlib.Path) -> ImportedModel:
    """Reads a run by its YAML file, which names the run's folder (`model_dir`) and its vocabularies.

    Paths in the file are relative to the current folder, as for `onmt-main`, or to the folder of the file. If the run
    has averaged checkpoints (`avg/`), the last of them is taken.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or asks for what kformer cannot represent.
    """
    settings = _Settings(file)
    folder = settings.path("model_dir")
    model = _arguments(folder / "model_description.py")
    checkpoint = TensorFlowCheckpoint(folder / "avg" if (folder / "avg" / "checkpoint").is_file() else folder)
    source = settings.tokenizer("source", checkpoint.shape(_SOURCE)[0])
    target = settings.tokenizer("target", checkpoint.shape(_TARGET)[0] if _TARGET in checkpoint else source.vocab_size)
    tying, embeddings = _ties(checkpoint)
    layers = model["num_layers"]
    encoder_layers, decoder_layers = layers if isinstance(layers, (list, tuple)) else (layers, layers)
    d_model = model["num_units"]
    transformer = TransformerConfig(
        source_vocab_size=source.vocab_size,
        target_vocab_size=target.vocab_size,
        num_encoder_layers=encoder_layers,
        num_decoder_layers=decoder_layers,
        d_model=d_model,
        d_ff=model["ffn_inner_dim"],
        num_heads=model["num_heads"],
        dropout_rate=float(model["dropout"]),
        attention_dropout_rate=float(model["attention_dropout"]),
        norm_first=model["pre_norm"],
        layer_norm_epsilon=1e-3,  # of Keras
        use_bias=model["mha_bias"],
        **_positions(d_model, model["maximum_relative_position"]),
        embedding_tying=tying,
        softmax_bias="decoder/output_layer/bias" in checkpoint,
        pad_id=target.pad_id,
        start_id=target.start_id,
        end_id=target.end_id,
    )
    weights = dict(embeddings)
    for side, number in (("encoder", encoder_layers), ("decoder", decoder_layers)):
        for index in range(number):
            weights |= _layer(side, index, transformer)
        if transformer.norm_first:
            weights |= _norm(f"{side}/final_norm", f"{side}/layer_norm")
    if transformer.softmax_bias:
        weights["logits/bias"] = same("decoder/output_layer/bias")
    return ImportedModel(
        transformer, (source, target), settings.decoding(), checkpoint, weights, frozenset({_SOURCE, _TARGET})
    )


class _Settings:
    """The YAML file of a run.

    Args:
        file: The file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no mapping.
    """

    def __init__(self, file: pathlib.Path) -> None:
        self._file = file
        self._content = read_mapping(file)
        self._data = self._part("data")
        self._params = self._part("params")

    def _part(self, name: str) -> Mapping[str, Any]:
        part = self._content.get(name) or {}
        if not isinstance(part, dict):
            raise ValueError(f"{name} in {self._file} must be a mapping. Received: {part!r:.100}.")
        return part

    def path(self, name: str, part: Mapping[str, Any] | None = None) -> pathlib.Path:
        """The existing file or folder that a field names.

        Raises:
            FileNotFoundError: There is none.
            ValueError: The field is missing.
        """
        given = (self._content if part is None else part).get(name)
        if not isinstance(given, str):
            raise ValueError(f"{name} is missing in {self._file}. Name the YAML file that the model was trained by.")
        for path in (pathlib.Path(given), self._file.parent / given):
            if path.exists():
                return path
        raise FileNotFoundError(
            f"{name} in {self._file} names {given}, which is neither in the current folder nor beside that file."
        )

    def tokenizer(self, side: str, vocab_size: int) -> PieceVocabularyTokenizer:
        """The tokenizer of "source" or "target"."""
        vocabulary = self.path(f"{side}_vocabulary", self._data)
        lines = read_lines(vocabulary)
        if len(lines) + 1 != vocab_size:
            raise ValueError(
                f"{vocabulary} has {len(lines)} lines. Expected: {vocab_size - 1}, one for each row of the embeddings "
                "but that of unknown tokens. It is the vocabulary of another model."
            )
        missing = [piece for piece in (_BLANK, _START, _END) if piece not in lines]
        if missing:
            raise ValueError(f"{vocabulary} lacks {', '.join(missing)}. Name the vocabulary that the model had.")
        controls = self._controls(side)
        pieces = [*lines, "<unk>"]
        pad, start, end = (pieces.index(piece) for piece in (_BLANK, _START, _END))
        return PieceVocabularyTokenizer(
            self._sentencepiece(side).read_bytes(),
            pieces,
            pad,
            start,
            end,
            len(lines),
            first_ids=[start] if controls["start"] else [],
            unknown_text=" ⁇ ",
            last_ids=[end] if side == "target" or controls["end"] else [],
        )

    def _controls(self, side: str) -> dict[str, bool]:
        """Whether sources have a start and an end token. Targets always have both."""
        given = self._data.get(f"{side}_sequence_controls") or {}
        if side == "target":
            if given and not (given.get("start") and given.get("end")):
                raise ValueError(f"target_sequence_controls in {self._file} is {given!r}. Expected: start and end.")
            return {"start": False, "end": True}
        return {name: bool(given.get(name)) for name in ("start", "end")}

    def _sentencepiece(self, side: str) -> pathlib.Path:
        """The SentencePiece model of one side.

        Raises:
            ValueError: The texts are cut in another way.
        """
        given = self._data.get(f"{side}_tokenization") or self._data.get("tokenization")
        if isinstance(given, str):
            given = read_mapping(self.path(f"{side}_tokenization", {f"{side}_tokenization": given}))
        settings = given if isinstance(given, dict) else {}
        parameters = settings.get("params", settings)
        name = next((key for key in ("model", "sp_model_path") if isinstance(parameters.get(key), str)), None)
        others = {key for key, value in parameters.items() if value} - _OF_SENTENCEPIECE - _OF_SUBWORD_SAMPLING
        if name is None or parameters.get("mode", "none") != "none" or others:
            raise ValueError(
                f"{side}_tokenization in {self._file} is {given!r:.200}. kformer cuts texts by SentencePiece alone: "
                f"name the model by which the {side} texts were cut, such as {side}_tokenization: {{type: "
                "SentencePieceTokenizer, params: {model: sp.model}}."
            )
        return self.path(name, parameters)

    def decoding(self) -> DecodingConfig:
        """The search that the file asks for; OpenNMT-tf has a beam of 4 by default with --auto_config."""
        params = self._params
        for name in ("coverage_penalty", "replace_unknown_target", "sampling_topk", "sampling_temperature"):
            if params.get(name) and params[name] != _OF_NO_SAMPLING.get(name):
                raise ValueError(f"{name} in {self._file} is {params[name]!r}, which kformer's search does not have.")
        longest = int(params.get("maximum_decoding_length", _LONGEST))
        return DecodingConfig(
            beam_size=int(params.get("beam_width", 4)),
            length_penalty=float(params.get("length_penalty", 0.0)),
            max_extra_length=longest,
            max_length=longest,
            min_length=int(params.get("minimum_decoding_length", 0)),
            beam_rules="opennmt",
        )


def _arguments(file: pathlib.Path) -> dict[str, Any]:
    """The arguments of the model that model_description.py makes. The file is read, and not run.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It makes another model.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing. model_dir must name the folder that OpenNMT-tf wrote.")
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{file} cannot be read as Python: {error}. Copy it again.") from error
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        others = call.args
        if function == "get_model_from_catalog" and others and isinstance(others[0], ast.Constant):
            function, others = str(others[0].value), others[1:]
        if function in _CATALOGUE:
            if others:
                raise ValueError(
                    f"{file} gives arguments of {function} without their names: {ast.unparse(call)}. Write each as "
                    "name=value: kformer cannot tell which one it is."
                )
            return _checked(file, _DEFAULTS | _CATALOGUE[function] | _given(file, call))
    raise ValueError(
        f"{file} makes a model that kformer does not know. It can import: {', '.join(_CATALOGUE)}; and Transformer "
        f"with the arguments {', '.join(_DEFAULTS)}."
    )


def _given(file: pathlib.Path, call: ast.Call) -> dict[str, Any]:
    """The arguments of a call, which must be plain values."""
    given = {}
    for keyword in call.keywords:
        if keyword.arg in _NOT_NUMBERS:
            continue
        try:
            given[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except ValueError:
            given[str(keyword.arg)] = ast.unparse(keyword.value)
            if isinstance(_DEFAULTS.get(str(keyword.arg)), int | float):
                raise ValueError(
                    f"{file} computes {keyword.arg}={given[str(keyword.arg)]}. Write its value: the file is not run."
                ) from None
    if unknown := sorted(given.keys() - _DEFAULTS.keys()):
        raise ValueError(f"{file} gives {unknown[0]}={given[unknown[0]]}, which kformer cannot represent.")
    return given


def _checked(file: pathlib.Path, arguments: dict[str, Any]) -> dict[str, Any]:
    distance, encoder = arguments["maximum_relative_position"], arguments["position_encoder_class"]
    name = str(encoder).rpartition(".")[2]  # without its module
    if name != ("None" if distance is not None else _SINUSOIDS.rpartition(".")[2]):
        raise ValueError(
            f"{file} makes a model with maximum_relative_position={distance} and position_encoder_class={encoder}. "
            "kformer has either sinusoids, or relative positions with position_encoder_class=None, as in "
            "TransformerRelative."
        )
    if not arguments["mha_bias"]:
        raise ValueError(
            f"{file} makes a model with mha_bias=False, whose feed-forward networks have a bias. kformer has a bias in "
            "both or in none."
        )
    return arguments


def _positions(d_model: int, distance: int | None) -> dict[str, Any]:
    """The fields of the positions: relative ones up to a distance, or sinusoids if it is None."""
    if distance is not None:
        return {"positional_encoding": "relative_values", "max_relative_distance": distance}
    return {
        "positional_encoding": "sinusoidal_halves",
        "max_wavelength": 10000.0 ** (d_model / (d_model - 2)),  # the last wavelength is 10,000 there
        "first_position": 1,
    }


def _ties(checkpoint: Checkpoint) -> tuple[str, dict[str, Source]]:
    """The value of `TransformerConfig.embedding_tying`, and where the embeddings come from."""
    if _SOFTMAX not in checkpoint:
        tied = "target_embedding/embeddings"
        if _TARGET in checkpoint and _SOURCE in checkpoint:
            return "target", {"source_embedding/embeddings": same(_SOURCE), tied: same(_TARGET)}
        return "all", {"shared_embedding/embeddings": same(_SOURCE if _SOURCE in checkpoint else _TARGET)}
    target = _TARGET if _TARGET in checkpoint else _SOURCE
    return "none", {
        "source_embedding/embeddings": same(_SOURCE),
        "target_embedding/embeddings": same(target),
        "target_embedding/reverse_embeddings": same(_SOFTMAX),
    }


def _layer(side: str, index: int, transformer: TransformerConfig) -> dict[str, Source]:
    """The weights of one layer."""
    path, name = f"{side}/layer_{index}", f"{side}/layers/{index}"
    norm = "input_layer_norm" if transformer.norm_first else "output_layer_norm"
    attentions = {"self_attention": "self_attention"}
    if side == "decoder":
        attentions["cross_attention"] = "attention/0"
    weights: dict[str, Source] = {}
    for ours, theirs in attentions.items():
        for projection, linear in _PROJECTIONS.items():
            weights |= _dense(f"{path}/{ours}/{projection}", f"{name}/{theirs}/layer/linear_{linear}")
        weights |= _norm(f"{path}/{ours}_residual/norm", f"{name}/{theirs}/{norm}")
    if transformer.positional_encoding == "relative_values":
        for part in ("keys", "values"):
            vectors = f"{name}/self_attention/layer/relative_position_{part}"
            weights[f"{path}/self_attention/relative/{part}"] = same(vectors)
    for part in ("inner", "outer"):
        weights |= _dense(f"{path}/feed_forward/{part}", f"{name}/ffn/layer/{part}")
    return weights | _norm(f"{path}/feed_forward_residual/norm", f"{name}/ffn/{norm}")


def _dense(path: str, name: str) -> dict[str, Source]:
    return {f"{path}/kernel": same(f"{name}/kernel"), f"{path}/bias": same(f"{name}/bias")}


def _norm(path: str, name: str) -> dict[str, Source]:
    return {f"{path}/gamma": same(f"{name}/gamma"), f"{path}/beta": same(f"{name}/beta")}
