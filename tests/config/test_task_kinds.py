"""The description of each task agrees with its class, and commands ask the description."""

import dataclasses

import pytest
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.config import TASKS, TrainingConfig, TransformerConfig, answer_outputs, check_first_weights, task_kind
from kformer.models import build_model
from kformer.tasks import task_of

pytestmark = pytest.mark.tensorflow_only
LAYERS = ("num_encoder_layers", "num_decoder_layers")


@pytest.mark.parametrize("name", TASKS)
def test_a_class_has_the_name_and_the_layers_of_its_description(name):
    task = task_of(name)
    adapted = task.adapt(TransformerConfig())
    assert task.name == name
    assert tuple(layers for layers in LAYERS if getattr(adapted, layers)) == task_kind(name).layers


@pytest.mark.parametrize("name", TASKS)
def test_a_model_has_the_inputs_of_its_layers(name):
    sizes = TransformerConfig(9, 9, 1, 1, d_model=4, d_ff=8, num_heads=2, embedding_tying="none", task=name)
    model = build_model(task_of(name).adapt(sizes))
    expected = {"num_encoder_layers": "source", "num_decoder_layers": "target_in"}
    assert set(model.input) == {expected[layers] for layers in task_kind(name).layers}


@pytest.mark.parametrize("use", [task_kind, task_of, answer_outputs])
def test_an_unknown_task_is_refused_by_its_name(use):
    with pytest.raises(ValueError, match="There is no task 'clasify'. Choose one of translate, .* mean 'classify'?"):
        use("clasify")


def test_a_configuration_of_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match="task must be one of translate, classify, .* Did you mean 'classify'?"):
        TransformerConfig(task="clasify")


def test_a_model_without_answers_has_no_outputs():
    with pytest.raises(ValueError, match="masked-language-model answers nothing by itself"):
        answer_outputs("masked-language-model")


def test_a_task_differs_from_the_settings_of_a_size_where_its_description_says_so():
    for task in ("language-model", "masked-language-model"):
        assert TrainingConfig.of_size("tiny", task=task).label_smoothing == 0.0
    assert TrainingConfig.of_size("tiny", task="tag").label_smoothing == TrainingConfig().label_smoothing > 0


def test_evaluate_refuses_a_task_that_it_cannot_score(monkeypatch, tmp_path):
    """It does not score it as another one."""
    monkeypatch.setitem(TASKS, "classify", dataclasses.replace(TASKS["classify"], scored_by=None))
    (tmp_path / "test.tsv").write_text("In the beginning\tlaw\n")
    command = ["evaluate", "--preset", "bible-books", "--test", str(tmp_path / "test.tsv")]
    with pytest.raises(ValueError, match="cannot score a model of the task classify"):
        CliRunner().invoke(app, command, catch_exceptions=False)


@pytest.mark.parametrize(
    ("task", "earlier"),
    [
        ("translate", {"translate"}),
        ("language-model", {"language-model"}),
        # These have an encoder alone, as translators have one.
        ("classify", {"translate", "classify", "tag", "masked-language-model"}),
        ("tag", {"translate", "classify", "tag", "masked-language-model"}),
        ("masked-language-model", {"translate", "classify", "tag", "masked-language-model"}),
    ],
)
def test_a_model_begins_with_the_weights_of_one_that_has_the_same_layers(task, earlier):
    for name in TASKS:
        if name in earlier:
            check_first_weights(task, name)
        else:
            with pytest.raises(ValueError, match=f"A model of the task {task} can begin with the weights of a run of"):
                check_first_weights(task, name)
