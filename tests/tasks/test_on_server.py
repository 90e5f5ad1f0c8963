"""Models of every task on `kformer serve`, and the commands that ask it."""

import json
import shutil

import numpy as np
import pytest
from servers import running
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.client import Client
from kformer.config import DecodingConfig
from kformer.export.saved_model import export_saved_model
from kformer.tasks import Classifier, LanguageModel, Tagger

pytestmark = pytest.mark.tensorflow_only

TEXTS = ["one two", "", "six five four three", "two"]
SEARCH = DecodingConfig(beam_size=3, length_penalty=4.0, max_extra_length=9)


@pytest.fixture(scope="module")
def predictors(run_of):
    return {
        "classify": Classifier.from_run(run_of("classify")),
        "tag": Tagger.from_run(run_of("tag")),
        "generate": LanguageModel.from_run(run_of("language-model"), SEARCH),
    }


@pytest.fixture(scope="module")
def exported(predictors, tagger_export, tmp_path_factory):
    """The folder with an export of each predictor."""
    folder = tmp_path_factory.mktemp("served")
    export_saved_model(predictors["classify"], folder / "classify")
    shutil.copytree(tagger_export, folder / "tag")
    export_saved_model(predictors["generate"], folder / "generate", signatures=["generate_with_options", "score"])
    return folder


@pytest.fixture(scope="module")
def served(exported):
    from kformer.serving.config_files import read_batching
    from kformer.serving.model_settings import ModelSettings
    from kformer.serving.settings import ServerSettings

    models = [ModelSettings(path.name, path) for path in exported.iterdir()]
    batching = read_batching(exported / "classify" / "batching.config")
    with running(ServerSettings(models, rest_port=0, grpc_port=0, batching=batching)) as server:
        yield server


def invoke(command, url, tmp_path, *options, texts=TEXTS):
    """What the command makes of the texts, by a server's model."""
    return invoke_with(command, ["--server", url], tmp_path, *options, texts=texts)


def invoke_with(command, model, tmp_path, *options, texts=TEXTS):
    """What the command makes of the texts, by the model that these arguments name."""
    (tmp_path / "in").write_text("\n".join(texts) + "\n")
    files = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    answer = CliRunner().invoke(app, [command, *model, *files, *options], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return (tmp_path / "out").read_text().splitlines()


@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.parametrize("task", ["classify", "tag", "generate"])
@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_the_command_of_each_task_asks_a_server(task, protocol, served, predictors, tmp_path):
    urls = {"rest": f"{served.url}/v1/models/{task}", "grpc": f"grpc://{served.grpc_address}/{task}"}
    assert invoke(task, urls[protocol], tmp_path) == predictors[task](TEXTS)


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_tabs_and_byte_order_marks_in_requests_are_white_space(protocol, served, predictors):
    urls = {"rest": f"{served.url}/v1/models/classify", "grpc": f"grpc://{served.grpc_address}/classify"}
    texts = ["one two three", "\ufeffone two three", "one\ufefftwo three", "one\ttwo three\t"]
    with Client(urls[protocol]) as client:
        found = client.predict("serving_default", {"text": texts})["probabilities"]
    for probabilities in (found, predictors["classify"].probabilities(texts)):
        np.testing.assert_array_equal(probabilities, probabilities[[0, 0, 0, 0]])


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_a_server_tells_how_probable_texts_are(protocol, served, predictors, tmp_path):
    urls = {"rest": f"{served.url}/v1/models/generate", "grpc": f"grpc://{served.grpc_address}/generate"}
    texts = ["one two", "six five four three", "two"]
    lines = invoke("score", urls[protocol], tmp_path, "--format", "jsonl", texts=texts)
    found, right = [json.loads(line) for line in lines], predictors["generate"].score(texts)
    assert [one["text"] for one in found] == texts
    np.testing.assert_allclose([one["log_probability"] for one in found], right["log_probability"], atol=1e-3)
    assert [one["tokens"] for one in found] == right["tokens"].tolist()
    assert "translation" not in found[0]


def test_a_server_draws_texts(served, predictors, tmp_path):
    options = ("--temperature", "1", "--seed", "7", "--max-length", "5")
    found = invoke("generate", f"{served.url}/v1/models/generate", tmp_path, *options)
    assert found == predictors["generate"].sample(TEXTS, seed=7, max_length=5)


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_the_least_length_arrives_at_a_server(protocol, served, predictors, tmp_path):
    urls = {"rest": f"{served.url}/v1/models/generate", "grpc": f"grpc://{served.grpc_address}/generate"}
    expected = predictors["generate"].sample(TEXTS, temperature=0.0, min_length=8)
    assert invoke("generate", urls[protocol], tmp_path, "--min-length", "8") == expected
    assert predictors["generate"](TEXTS) != expected


def test_requests_to_a_server_draw_for_themselves(served, tmp_path):
    url = f"{served.url}/v1/models/generate"
    options = ("--temperature", "1", "--max-length", "6")
    first, again = (invoke("generate", url, tmp_path, *options, texts=["one"] * 64) for _ in range(2))
    assert first == again
    assert first[:32] != first[32:]  # two requests


@pytest.fixture(scope="module")
def expected(predictors, run_of):
    """The texts of the search with the model's own length penalty, which are not those with the usual penalty."""
    found = predictors["generate"](TEXTS)
    usual = SEARCH.replace(length_penalty=DecodingConfig().length_penalty)
    assert LanguageModel.from_run(run_of("language-model"), usual)(TEXTS) != found
    return found


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_with_a_largest_length_a_server_keeps_the_length_penalty_of_the_model(protocol, served, expected, tmp_path):
    urls = {"rest": f"{served.url}/v1/models/generate", "grpc": f"grpc://{served.grpc_address}/generate"}
    assert invoke("generate", urls[protocol], tmp_path, "--max-length", "9") == expected


def test_with_a_largest_length_an_export_keeps_the_length_penalty_of_the_model(exported, expected, tmp_path):
    assert invoke_with("generate", [str(exported / "generate")], tmp_path, "--max-length", "9") == expected


def test_labels_come_with_their_probabilities(served, predictors, tmp_path):
    url = f"{served.url}/v1/models/classify"
    with Client(url) as client:
        found = client.predict("serving_default", {"text": TEXTS})
    assert found["labels"].tolist() == [[b"even", b"odd"]] * len(TEXTS)
    chosen = found["labels"][np.arange(len(TEXTS)), found["probabilities"].argmax(axis=1)]
    assert found["label"].tolist() == [label if text else b"" for label, text in zip(chosen, TEXTS, strict=True)]
    lines = [line.split("\t") for line in invoke("classify", url, tmp_path, "--format", "tsv")]
    assert [label for label, _ in lines] == predictors["classify"](TEXTS)
    np.testing.assert_allclose([float(share) for _, share in lines], found["probability"], atol=1e-4)


def test_a_model_of_another_task_is_refused_before_the_work(served, tmp_path):
    url = f"{served.url}/v1/models/classify"
    with pytest.raises(ValueError, match=r"gives no score, translation: its serving_default gives label, .* translate"):
        invoke("translate", url, tmp_path)
    with pytest.raises(ValueError, match="has no signature generate_with_options|gives no score, text"):
        invoke("generate", url, tmp_path, "--max-length", "5")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["classify", "tag", "generate"])
def test_a_server_and_a_model_are_one_too_many(command, tmp_path):
    with pytest.raises(ValueError, match="Name one model: --server URL names the server's"):
        invoke(command, "http://localhost:1/v1/models/m", tmp_path, "--preset", "bible-books")
