# Each target does its own set-up: Python 3.11 to 3.13, pip and make are all that it needs.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# setuptools warns of every editable installation.
INSTALL = PYTHONWARNINGS="ignore:Editable installation" $(BIN)/pip install --quiet -e

# The tests of what runs on every Keras backend; the rest is TensorFlow's.
EVERY_BACKEND = tests/layers tests/models tests/training tests/decoding tests/presets tests/test_config.py
# A test keeps one core busy, mostly with tracing. The tests of a file stay together: they share what is costly to make.
TWO_AT_ONCE = --numprocesses 2 --dist loadfile

.DELETE_ON_ERROR:
.PHONY: demo test test-slow lint wheel clean

demo: $(VENV)/.kformer
	$(BIN)/kformer demo

test: $(VENV)/.kformer-test
	$(BIN)/python -m pytest $(TWO_AT_ONCE)
	KERAS_BACKEND=jax $(BIN)/python -m pytest $(TWO_AT_ONCE) $(EVERY_BACKEND)

test-slow: $(VENV)/.kformer-test
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.kformer-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Builds the wheel and uses what it holds in an environment that holds nothing else.
wheel: $(VENV)/.kformer
	rm -rf build/wheel build/bare build/lib build/bdist.*
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(PYTHON) -m venv build/bare
	build/bare/bin/pip install --quiet build/wheel/kformer-*.whl
	cd build && bare/bin/python -c "import kformer; print('kformer', kformer.__version__, 'from', kformer.__file__)"
	cd build && bare/bin/python -c "from kformer import data, recipes; data.load_corpus('bible-en-es'); \
	  print('recipes', *[recipes.load_recipe(name) and name for name in recipes.recipe_names()])"
	cd build && echo "Blessed are the peacemakers." | bare/bin/kformer translate --preset bible-en-es

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
