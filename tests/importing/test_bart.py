"""A small BART of Hugging Face: its logits. Texts need a tokenizer that kformer does not have."""

import json

import numpy as np
import pytest
from importing.examples import FOLDER, TOLERANCE

from kformer.importing.bart import read_model
from kformer.importing.run import import_model
from kformer.models.building import build_model
from kformer.tokenizers import SymbolTokenizer

pytestmark = pytest.mark.tensorflow_only


def test_logits_are_the_same():
    expected = json.loads((FOLDER / "bart" / "expected.json").read_text())
    letters = SymbolTokenizer(["a"])
    imported = read_model(FOLDER / "bart", (letters, letters))
    model = build_model(imported.transformer)
    imported.check(model)
    imported.assign(model)
    sources, pad_id = expected["ids"], imported.transformer.pad_id
    longest = max(map(len, sources))
    source = np.array([ids + [pad_id] * (longest - len(ids)) for ids in sources], "int32")
    logits = model({"source": source, "target_in": np.array(expected["target_in"], "int32")})
    np.testing.assert_allclose(np.asarray(logits), expected["logits"], atol=TOLERANCE)
    assert imported.transformer.start_id == imported.transformer.end_id


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="byte-level BPE .* which kformer cannot do yet"):
        import_model(FOLDER / "bart", tmp_path / "run")
    assert not (tmp_path / "run").exists()
