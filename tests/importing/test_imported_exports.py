"""SavedModels of imported models answer as transformers did, in a process without kformer."""

import pytest

import kformer
from benchmarks.bridges.imported_exports import MODELS, answers_without_kformer, cases

pytestmark = [pytest.mark.tensorflow_only, pytest.mark.slow]


@pytest.mark.parametrize("name", [pytest.param("marian", marks=pytest.mark.in_ci), *MODELS[1:]])
def test_an_export_gives_the_answers_of_transformers(name, tmp_path):
    for case in cases(name, tmp_path):
        path = kformer.export_saved_model(case.predictor, tmp_path / f"exported{case.search}")
        assert answers_without_kformer(path, case.output, case.texts) == case.expected
        assert len(case.expected) == 200
