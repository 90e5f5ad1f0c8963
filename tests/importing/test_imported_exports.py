"""SavedModels of imported models answer as transformers did, in a process without kformer."""

import pytest

import kformer
from benchmarks.bridges.imported_exports import (
    LANGUAGE_MODELS,
    MODELS,
    TRANSLATORS,
    answers_without_kformer,
    cases,
)

pytestmark = [pytest.mark.tensorflow_only, pytest.mark.slow]


SEARCHES = [
    (name, search)
    for name in MODELS
    for search in (("greedy", "beam") if name in (*TRANSLATORS, *LANGUAGE_MODELS) else ("",))
]


@pytest.mark.parametrize(("name", "search"), SEARCHES)
def test_an_export_gives_the_answers_of_transformers(name, search, tmp_path):
    [case] = [case for case in cases(name, tmp_path) if case.search == search]
    path = kformer.export_saved_model(case.predictor, tmp_path / "exported")
    assert answers_without_kformer(path, case.output, case.texts) == case.expected
    assert len(case.expected) == 200
