"""Settings for all tests: quiet TensorFlow, tests sorted by backend, the same seed for each."""

import functools
import gc
import os
import pathlib
import shutil
import unittest.mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# XLA's optimisations take longer than these small models run.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import filelock
import keras
import pytest
import typer.testing

# Graphs are many objects that live long. With the usual thresholds, looking at them takes an eighth of the tests' time.
gc.set_threshold(100_000, 10, 10)


LONG_TESTS = frozenset(pathlib.Path(__file__).with_name("long_tests.txt").read_text().splitlines())


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(config, items):
    """Marks what takes long, see `list_long_tests.py`; leaves out, under another backend, what TensorFlow alone has.

    Under another backend, the long tests run before a release alone: they take six minutes there. Those that carry the
    mark `in_ci` in their file run in CI under each backend.
    """
    is_tensorflow = keras.backend.backend() == "tensorflow"
    for item in items:
        names = {item.nodeid.split("[")[0], item.nodeid.split("::")[0]}
        if names & LONG_TESTS and not item.get_closest_marker("slow"):
            item.add_marker("slow")
            if is_tensorflow:
                item.add_marker("in_ci")
    if is_tensorflow:
        return
    other = [item for item in items if item.get_closest_marker("tensorflow_only")]
    config.hook.pytest_deselected(items=other)
    items[:] = [item for item in items if item not in other]


@pytest.fixture(autouse=True, scope="session")
def _own_cache(shared_folder):
    """Translators that are kept for the next time are kept for these tests alone, not in the user's cache."""
    os.environ["KFORMER_CACHE"] = str(shared_folder / "cache")


@pytest.fixture(autouse=True, scope="session")
def _commands_are_made_once():
    """Typer makes all commands anew for each call of its runner, which takes longer than most of these calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(typer.main.get_command), raising=False)
        yield


@pytest.fixture(autouse=True)
def _fresh_keras():
    """Every test starts from one seed and leaves no global precision behind."""
    # tf.random.set_seed would also forget all compiled functions, such as those of a translator that tests share. Their
    # next call would take seconds. What kformer draws at random does not depend on it.
    with unittest.mock.patch("tensorflow.random.set_seed"):
        keras.utils.set_random_seed(20170612)  # the paper's first day on arXiv
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture
def untraced():
    """Runs of a few updates train without a graph."""
    import toy

    with toy.untraced():
        yield


@pytest.fixture(scope="session")
def chromium():
    """A browser without a window. Where there is none, its tests are left out; in CI that is an error."""
    browser, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if browser is None or driver is None:
        reason = "Pages are tested in Chromium: apt-get install chromium chromium-driver"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory, worker_id):
    """A folder of all processes that run these tests."""
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def made_once(shared_folder):
    """`made_once(name, make)` is a folder that `make` has filled, once for all processes that run these tests.

    Tests read it only.
    """

    def made(name, make):
        folder = shared_folder / name
        with filelock.FileLock(shared_folder / f"{name}.lock"):
            if not (shared_folder / f"{name}.made").exists():
                make(folder)
                (shared_folder / f"{name}.made").touch()
        return folder

    return made


@pytest.fixture(scope="session")
def numbers_run(made_once):
    """A run folder whose model has learned the language pair of tests/toy.py; translations are scored, too."""
    import toy

    from kformer.training.train import train

    # By BLEU, weights could be the best ones that do not know every single word yet: the scored texts have none.
    training = toy.TRAINING.replace(scored_sources=40)
    return made_once("run", lambda folder: train(toy.corpus(), folder, toy.TRANSFORMER, training))


@pytest.fixture(scope="session")
def numbers_translator(numbers_run):
    """The paper's beam search over that model."""
    from kformer.tasks.translator import Translator

    return Translator.from_run(numbers_run)


@pytest.fixture(scope="session")
def numbers_export(made_once, numbers_translator):
    """The base folder `numbers` of an export of that model, with all signatures: version 1."""
    from kformer.export.saved_model import export_saved_model
    from kformer.tasks.translator import Translator

    return made_once(
        "numbers", lambda folder: export_saved_model(numbers_translator, folder, signatures=Translator.signatures)
    )


@pytest.fixture(scope="session")
def cold_export_folder(numbers_export, tmp_path_factory):
    """That export for servers."""
    from servers import without_warm_up

    return without_warm_up(numbers_export, tmp_path_factory.mktemp("cold") / "numbers")


@pytest.fixture(scope="session")
def numbers_plain_export(made_once, numbers_translator):
    """The base folder `numbers` of an export of that model with `serving_default` alone, which loads much sooner."""
    from kformer.export.saved_model import export_saved_model

    return made_once("plain", lambda folder: export_saved_model(numbers_translator, folder / "numbers")) / "numbers"


@pytest.fixture(scope="session")
def plain_export_folder(numbers_plain_export, tmp_path_factory):
    """That export for servers."""
    from servers import without_warm_up

    return without_warm_up(numbers_plain_export, tmp_path_factory.mktemp("plain") / "numbers")


@pytest.fixture(scope="session")
def numbers_int8_export(made_once, numbers_translator):
    """The base folder of an export of that model in int8."""
    from kformer.export.saved_model import export_saved_model

    options = {"precision": "int8", "signatures": ["translate_with_options"]}
    return made_once("numbers-int8", lambda folder: export_saved_model(numbers_translator, folder, **options))
