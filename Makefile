# Each target does its own set-up: Python 3.11 to 3.13, pip and make are all that it needs.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# The environment of `make test-oldest`.
OLDEST_VENV ?= build/oldest-venv
OLDEST_BIN = $(OLDEST_VENV)/bin
OLDEST_VERSIONS = constraints/colab.txt
# The environment of `make wheel`.
BARE_VENV ?= build/bare
BARE_BIN = $(abspath $(BARE_VENV))/bin
# `make test-engines`: an environment for each, because Beam needs older versions of protobuf and NumPy.
ENGINES = ray beam spark
# setuptools warns of every editable installation.
QUIETLY = PYTHONWARNINGS="ignore:Editable installation"
INSTALL = $(QUIETLY) $(BIN)/pip install --quiet -e
OLDEST_INSTALL = $(QUIETLY) $(OLDEST_BIN)/pip install --quiet

# The tests of what computes by Keras's backend, which another backend may compute in another way: the layers, the searches,
# and a choice of what is made of them. Files that only write, read, count or print are the same on all.
EVERY_BACKEND = tests/layers tests/decoding tests/presets/test_packed_weights.py \
  $(patsubst %,tests/models/test_%.py,attention_scores depths key_value_heads_and_windows models_of_others searching \
  special_ids start_decoding transformer what_logits_depend_on) \
  $(patsubst %,tests/training/test_%.py,accumulation callbacks checkpoints compile ema losses metrics optimizers \
  sample_weights schedules serialization)
# What may depend on the versions of Keras, TensorFlow and protobuf; with the oldest ones they are tested alone. The
# notebooks, which run there too, train, export and serve.
VERSION_DEPENDENT = tests/layers \
  $(patsubst %,tests/tokenizers/test_%.py,existing_sentencepiece interface keras_nlp sentencepiece text_ops wordpiece) \
  $(patsubst %,tests/training/test_%.py,accumulation checkpoints ema metrics optimizers serialization)
VERSION_DEPENDENT_JAX = tests/training/test_optimizers.py \
  $(patsubst %,tests/layers/test_%.py,attention dropout encoder_and_decoder in_keras_models)
# A test keeps one core busy, mostly with tracing. Each process takes half of the tests in their order, so that most tests of a
# file stay together and share what is costly to make; whoever is ready first takes some of the other half. At the end the
# slowest tests are listed.
TWO_AT_ONCE = --numprocesses 2 --dist worksteal --durations 30 --durations-min 5

.DELETE_ON_ERROR:
.PHONY: demo test test-slow test-engines $(ENGINES:%=test-%) test-oldest oldest-versions oldest-environment lint notebooks address docs wheel clean

demo: $(VENV)/.kformer
	$(BIN)/kformer demo

# The reports say how long each test took: `tests/list_long_tests.py` makes of them the list of tests that are slow.
TESTS = not slow
OLDEST_TESTS =
test: $(VENV)/.kformer-test
	$(BIN)/python -m pytest $(TWO_AT_ONCE) -m "$(TESTS)" --junitxml build/tests-tensorflow.xml
	KERAS_BACKEND=jax $(BIN)/python -m pytest $(TWO_AT_ONCE) -m "$(TESTS)" --junitxml build/tests-jax.xml $(EVERY_BACKEND)

# The notebooks run in `make test-oldest`, with the versions of Colab, for which they are made.
test-slow: $(VENV)/.kformer-test
	$(BIN)/python -m pytest $(TWO_AT_ONCE) -m slow --ignore tests/project/test_notebooks.py
	KERAS_BACKEND=jax $(BIN)/python -m pytest $(TWO_AT_ONCE) -m slow $(EVERY_BACKEND)

# The batch engines, and columns with what each of them brings of pandas, Arrow and NumPy. Spark also needs Java.
test-engines: $(ENGINES:%=test-%)

$(ENGINES:%=test-%): test-%: build/%-venv/.kformer-test
	build/$*-venv/bin/python -m pytest --numprocesses 0 --durations 8 -m "" tests/inference/test_$*.py tests/inference/test_columns.py

# The versions that Google Colab has: installing kformer must replace none of them, and the tests must pass with them. The
# notebooks come first, and `-m ""` takes them, though they are slow: short tests then fill the time of the other process.
test-oldest: oldest-environment
	$(OLDEST_BIN)/python -m pytest $(TWO_AT_ONCE) -m "$(OLDEST_TESTS)" tests/project/test_notebooks.py $(VERSION_DEPENDENT)
	KERAS_BACKEND=jax $(OLDEST_BIN)/python -m pytest $(TWO_AT_ONCE) $(VERSION_DEPENDENT_JAX)

oldest-versions: $(OLDEST_VENV)/.versions

oldest-environment: $(OLDEST_VENV)/.kformer-test

lint: $(VENV)/.kformer-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A notebook is written as a script, whose changes can be read; Colab opens the notebook that is made of it.
notebooks: $(VENV)/.kformer-test
	$(BIN)/jupytext --update --to ipynb notebooks/*.py

# Once the project has a public address: badges that open the notebooks in Colab, what to install there, what to clone.
address:
	$(PYTHON) docs/address.py $(REPOSITORY)
	$(MAKE) notebooks

# build/docs/site/index.html. The notebooks run as a person would run them, which takes an hour; KFORMER_NOTEBOOK_MINUTES and
# its like make it minutes, see tests/project/test_notebooks.py.
docs: $(VENV)/.kformer-test
	$(BIN)/python docs/build.py $(DOCS_OPTIONS)

# Builds the wheel and uses what it holds in an environment that holds nothing else.
wheel:
	rm -rf build/wheel $(BARE_VENV) build/lib build/bdist.*
	$(PYTHON) -m venv $(BARE_VENV)
	$(BARE_BIN)/python -m pip install --quiet --upgrade pip
	$(BARE_BIN)/pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(BARE_BIN)/pip install --quiet build/wheel/kformer-*.whl
	cd build && $(BARE_BIN)/python -c "import kformer; print('kformer', kformer.__version__, 'from', kformer.__file__)"
	cd build && $(BARE_BIN)/python -c "from kformer import data, recipes; data.load_corpus('bible-en-es'); \
	  print('recipes', *[recipes.load_recipe(name) and name for name in recipes.recipe_names()])"
	cd build && echo "You are witnesses of these things." | $(BARE_BIN)/kformer translate --preset bible-en-es

clean:
	rm -rf $(VENV) build dist *.egg-info

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.kformer: $(BIN)/python setup.cfg pyproject.toml
	$(INSTALL) .
	touch $@

$(VENV)/.kformer-test: $(BIN)/python setup.cfg pyproject.toml
	$(INSTALL) '.[test]'
	touch $@ $(VENV)/.kformer

$(ENGINES:%=build/%-venv/.kformer-test): build/%-venv/.kformer-test: setup.cfg pyproject.toml
	rm -rf build/$*-venv
	$(PYTHON) -m venv build/$*-venv
	build/$*-venv/bin/pip install --quiet --upgrade pip
	$(QUIETLY) build/$*-venv/bin/pip install --quiet -e '.[$*]' filelock pytest pytest-xdist
	touch $@

$(OLDEST_VENV)/.versions: $(OLDEST_VERSIONS)
	rm -rf $(OLDEST_VENV)
	$(PYTHON) -m venv $(OLDEST_VENV)
	$(OLDEST_INSTALL) --upgrade pip
	$(OLDEST_INSTALL) --requirement $(OLDEST_VERSIONS)
	touch $@

# kformer is installed as a user would, and pip alone decides what to replace. Then the lines of the file that are no longer
# installed are printed, and one of them is an error.
$(OLDEST_VENV)/.kformer-test: $(OLDEST_VENV)/.versions setup.cfg pyproject.toml
	$(OLDEST_INSTALL) -e '.[jax]'
	! $(OLDEST_BIN)/pip freeze | grep --invert-match --line-regexp --fixed-strings --file - $(OLDEST_VERSIONS) | grep '^[^#]'
	$(OLDEST_INSTALL) --constraint $(OLDEST_VERSIONS) -e '.[test]'
	touch $@
