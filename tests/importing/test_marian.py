"""Marian models of Hugging Face: files in all their forms, and files that are refused."""

import json
import os
import shutil
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest
from importing.examples import FOLDER, ONEDNN, error_of_command, run_command

from kformer.importing.checkpoint_folder import open_checkpoint
from kformer.importing.run import import_model
from kformer.models.building import build_model
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights
from kformer.tasks.translator import Translator
from kformer.tokenizers import load_tokenizers

pytestmark = pytest.mark.tensorflow_only

DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
SHARED, SOFTMAX = "model.shared.weight", "lm_head.weight"


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / "marian", tmp_path / "folder")


def edit(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def tensors(folder):
    checkpoint = open_checkpoint(folder)
    return {name: checkpoint.read(name) for name in checkpoint.names()}


def write_safetensors(path, arrays):
    """A file of the format of the package safetensors, which cannot write bfloat16 of NumPy in all its versions."""
    header, content = {}, b""
    for name, array in arrays.items():
        end = len(content) + array.nbytes
        header[name] = {"dtype": DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": [len(content), end]}
        content += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)


def change(folder, **arrays):
    """Replaces tensors of a folder, or adds them; None: takes one away. Dots are written as two underlines."""
    changed = {**tensors(folder), **{name.replace("__", "."): array for name, array in arrays.items()}}
    kept = {name: array for name, array in changed.items() if array is not None}
    write_safetensors(folder / "model.safetensors", kept)


def weights(run):
    model = build_model(run.transformer_config())
    load_weights(run, model)
    return {weight.path: np.asarray(weight) for weight in model.weights}


def test_the_command_finds_the_same_weights_and_keeps_no_freed_memory(folder, tmp_path, monkeypatch):
    expected = weights(import_model(folder, tmp_path / "run"))
    assert not run_command(monkeypatch, folder, tmp_path / "other")
    assert os.environ[ONEDNN] == "0"
    found = weights(RunFolder(tmp_path / "other"))
    assert found.keys() == expected.keys()
    for path, array in found.items():
        np.testing.assert_array_equal(array, expected[path], path)


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_numbers_of_16_bits_are_read_as_they_are(folder, tmp_path, dtype):
    rounded = {name: array.astype(dtype) for name, array in tensors(folder).items()}
    write_safetensors(folder / "model.safetensors", rounded)
    found = weights(import_model(folder, tmp_path / "run"))
    np.testing.assert_array_equal(found["shared_embedding/embeddings"], rounded[SHARED].astype("float32"))


def test_a_divided_file_gives_the_same_weights(folder, tmp_path):
    whole = weights(import_model(folder, tmp_path / "whole"))
    every = tensors(folder)
    (folder / "model.safetensors").unlink()
    names = sorted(every)
    parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, some in parts.items():
        write_safetensors(folder / file, {name: every[name] for name in some})
    index = {"weight_map": {name: file for file, some in parts.items() for name in some}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    divided = weights(import_model(folder, tmp_path / "divided"))
    assert all(np.array_equal(divided[path], array) for path, array in whole.items())


def test_a_softmax_that_differs_from_the_embeddings_is_imported_though_the_configuration_ties_them(folder, tmp_path):
    other = tensors(folder)[SHARED][::-1]
    change(folder, lm_head__weight=np.ascontiguousarray(other))
    run = import_model(folder, tmp_path / "run")
    assert run.transformer_config().embedding_tying == "none"
    np.testing.assert_array_equal(weights(run)["target_embedding/reverse_embeddings"], other.T)


def test_a_softmax_that_repeats_the_embeddings_is_tied(folder, tmp_path):
    change(folder, lm_head__weight=tensors(folder)[SHARED])
    assert import_model(folder, tmp_path / "run").transformer_config().embedding_tying == "all"


def test_where_there_is_one_vocabulary_the_size_of_a_second_does_not_count(folder, tmp_path):
    edit(folder, decoder_vocab_size=677)
    transformer = import_model(folder, tmp_path / "run").transformer_config()
    assert (transformer.source_vocab_size, transformer.target_vocab_size) == (674, 674)


@pytest.mark.parametrize("written", ["cc-by-4.0", '"cc-by-4.0"', "'cc-by-4.0' "])
def test_the_licence_is_that_of_the_model_card_without_quotes(folder, tmp_path, written):
    (folder / "README.md").write_text(f"---\nlanguage: es\nlicense: {written}\n---\n# A model\n")
    assert import_model(folder, tmp_path / "run").facts()["licence"] == "cc-by-4.0"


def test_an_export_is_tried_on_the_lines_that_the_command_is_given(folder, tmp_path, monkeypatch):
    (tmp_path / "lines.txt").write_text("One line.\n\nAnother one.\n")
    assert not run_command(monkeypatch, folder, tmp_path / "run", "--samples", tmp_path / "lines.txt")
    assert RunFolder(tmp_path / "run").samples() == ["One line.", "Another one."]


def test_the_row_of_padding_is_copied(folder, tmp_path):
    matrix = tensors(folder)[SHARED]
    matrix[-1] = 0.25
    change(folder, model__shared__weight=matrix)
    found = weights(import_model(folder, tmp_path / "run"))
    np.testing.assert_array_equal(found["shared_embedding/embeddings"][-1], matrix[-1])


@pytest.fixture
def refuse(monkeypatch, capsys):
    """The command says one line, with status 1, and makes no run folder."""

    def refuse(folder, place, told):
        assert told in error_of_command(monkeypatch, capsys, folder, place / "run")
        assert not (place / "run").exists()

    return refuse


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("normalize_before", True),
        ("activation_function", "mish"),
        ("decoder_ffn_dim", 64),
        ("encoder_layers", None),
        ("pad_token_id", "no"),
    ],
)
def test_what_cannot_be_represented_is_refused_by_its_name(folder, tmp_path, field, value):
    edit(folder, **{field: value})
    with pytest.raises(ValueError, match=f"{field}.* in .*config.json"):
        import_model(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json", "model.safetensors"])
def test_a_missing_file_is_named(folder, tmp_path, name, refuse):
    (folder / name).unlink()
    refuse(folder, tmp_path, "has no weights" if name.startswith("model") else f"{name} is missing")


@pytest.mark.parametrize("name", ["vocab.json", "model.safetensors", "config.json"])
def test_half_of_a_file_is_refused(folder, tmp_path, name, refuse):
    half = (folder / name).read_bytes()
    (folder / name).write_bytes(half[: len(half) // 2])
    refuse(folder, tmp_path, str(folder / name))


NOT_FINITE = np.full((32,), np.nan, "float32")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model__encoder__layers__0__fc1__bias": NOT_FINITE[:0]}, "of the size (0,)"),
        ({"model__decoder__layers__1__fc2__bias": NOT_FINITE}, "layers.1.fc2.bias holds numbers that are not finite"),
        ({"model__encoder__layers__0__fc1__bias": None}, "lack the tensor model.encoder.layers.0.fc1.bias"),
        (
            {"model__encoder__layernorm_embedding__bias": NOT_FINITE},
            "hold the tensor model.encoder.layernorm_embedding",
        ),
        ({"model__shared__weight": None}, "lack the tensor model.shared.weight"),
    ],
)
def test_other_tensors_are_refused(folder, tmp_path, changes, told, refuse):
    change(folder, **changes)
    refuse(folder, tmp_path, told)


def test_a_softmax_that_the_configuration_does_not_tie_must_be_there(folder, tmp_path, refuse):
    edit(folder, tie_word_embeddings=False)
    refuse(folder, tmp_path, "lack the tensor lm_head.weight")


def test_a_missing_part_of_a_divided_file_is_named(folder, tmp_path, refuse):
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {SHARED: "../gone.safetensors"}}))
    refuse(folder, tmp_path, "gone.safetensors is missing")
    index.write_text(json.dumps({"weight_map": {SHARED: "part.safetensors", "other": "part.safetensors"}}))
    refuse(folder, tmp_path, "lacks the tensor other")


def pytorch_pickle(path, size, offset, shape, strides):
    """A file of PyTorch with one tensor: `size` numbers, and how the tensor looks at them."""
    text = f"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI{size}\ntQ"
    places = "".join(f"({''.join(f'I{number}' + chr(10) for number in numbers)}t" for numbers in (shape, strides))
    content = f"(dS'{SHARED}'\nctorch._utils\n_rebuild_tensor_v2\n({text}I{offset}\n{places}tRs."
    write_archive(path, content.encode(), {"0": np.zeros(4, "float32").tobytes()})


def write_archive(path, content, storages):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        for key, numbers in storages.items():
            archive.writestr(f"archive/data/{key}", numbers)


@pytest.mark.parametrize(
    ("size", "offset", "shape", "strides", "told"),
    [
        (4, 0, (2, 3), (3, 1), "reaches beyond its numbers"),
        (4, 3, (2,), (1,), "reaches beyond its numbers"),
        (0, 0, (3,), (1,), "has 16 bytes"),
        (9, 0, (3,), (1,), "has 16 bytes"),
        (4, -1, (3,), (1,), "has the shape"),
        (4, 0, (3,), (-1,), "has the shape"),
        (4, 0, (3,), (1, 1), "has the shape"),
    ],
)
def test_a_tensor_that_looks_beyond_its_numbers_is_refused(tmp_path, size, offset, shape, strides, told):
    pytorch_pickle(tmp_path / "pytorch_model.bin", size, offset, shape, strides)
    with pytest.raises(ValueError, match=told):
        open_checkpoint(tmp_path).read(SHARED)


def test_a_tensor_of_a_file_of_pytorch_is_read(tmp_path):
    pytorch_pickle(tmp_path / "pytorch_model.bin", 4, 1, (3, 1), (1, 1))
    assert open_checkpoint(tmp_path).read(SHARED).tolist() == [[0.0]] * 3


@pytest.mark.parametrize("is_archive", [True, False])
@pytest.mark.parametrize("code", ["os.system", "builtins.eval"])
def test_code_in_a_file_is_refused_by_its_name_and_not_run(folder, tmp_path, code, is_archive, refuse):
    (folder / "model.safetensors").unlink()
    mark = tmp_path / "was-run"
    module, name = code.split(".")
    command = f"touch {mark}" if name == "system" else f"open({str(mark)!r}, 'w')"
    content = f"c{module}\n{name}\n(S{command!r}\ntR.".encode()
    path = folder / "pytorch_model.bin"
    if is_archive:
        write_archive(path, content, {})
    else:
        path.write_bytes(content)
    refuse(folder, tmp_path, f"names the code {code}")
    assert not mark.exists()


@pytest.mark.parametrize("name", ["marian_separate", "mbart"])
def test_half_of_a_file_of_pytorch_is_refused(tmp_path, name, refuse):
    folder = shutil.copytree(FOLDER / name, tmp_path / "folder")
    path = folder / "pytorch_model.bin"
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 100):
        path.write_bytes(whole[:length])
        refuse(folder, tmp_path, f"{path} is no file of PyTorch, or it is damaged")


def test_a_configuration_without_end_of_brackets_is_an_error_of_its_file(folder, tmp_path):
    (folder / "config.json").write_text('{"a": ' + "[" * 100_000)
    with pytest.raises(ValueError, match=r"config.json cannot be read as JSON: .* Copy it again."):
        import_model(folder, tmp_path / "run")


def test_all_lines_of_a_text_have_its_language_code(folder, tmp_path):
    translator = Translator.from_run(import_model(folder, tmp_path / "run").path)
    first, second = "The house.", "A green book."
    both = [f">>spa<< {first}\n{second}", f"{first}\n{second}", f">>spa<< {first}\n>>fra<<{second}"]
    lines = [f">>spa<< {first}", f">>spa<< {second}", first, second, f">>fra<<{second}"]
    spanish, other, plain, none, french = translator(lines)
    assert translator(both) == [f"{spanish}\n{other}", f"{plain}\n{none}", f"{spanish}\n{french}"]
    assert other != none
    assert translator(">>spa<<") == ""


def test_a_code_before_a_text_does_not_go_beyond_its_line(folder, tmp_path):
    """A quoted mail may begin with >>, and a program may have << in a later line."""
    source, _ = load_tokenizers(import_model(folder, tmp_path / "run").tokenizer_folder)
    text = ">> one two\nthree << four"
    same, other = source.tokenize([text, f" {text}"]).to_list()  # a blank before it is dropped
    assert same == other
    assert len(same) > 4
