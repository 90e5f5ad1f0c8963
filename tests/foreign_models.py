"""SavedModels that kformer did not make, and that do more than compute."""

import pathlib

import tensorflow as tf

TEXTS = tf.TensorSpec([None], tf.string)


def saved(folder: pathlib.Path, function, module: tf.Module | None = None) -> pathlib.Path:
    """A SavedModel whose `serving_default` is a function of `text`."""
    module = module or tf.Module()
    module.call = tf.function(function, input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    tf.saved_model.save(module, str(folder), signatures=module.call)
    return folder


def reading(folder: pathlib.Path) -> pathlib.Path:
    """Gives the content of the files that a client names."""
    return saved(folder, lambda text: {"content": tf.map_fn(tf.io.read_file, text)})


def writing_at_start(folder: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """Writes a file when it is loaded: a variable has its value from a function that writes."""

    class Writing(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.lookup.StaticHashTable(_WritingInitializer(str(target)), -1)

    module = Writing()
    return saved(folder, lambda text: {"number": module.table.lookup(text)}, module)


class _WritingInitializer(tf.lookup.KeyValueTensorInitializer):
    def __init__(self, target: str):
        self._target = target
        super().__init__(["a"], [1], tf.string, tf.int64)

    def initialize(self, table):
        with tf.control_dependencies([tf.io.write_file(self._target, "written")]):
            return super().initialize(table)


def with_vocabulary(folder: pathlib.Path, vocabulary: pathlib.Path) -> pathlib.Path:
    """The number of a word in a file, which TensorFlow copies into the folder `assets`."""

    class Numbers(tf.Module):
        def __init__(self):
            super().__init__()
            whole, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
            lines = tf.lookup.TextFileInitializer(str(vocabulary), tf.string, whole, tf.int64, number)
            self.table = tf.lookup.StaticHashTable(lines, -1)
            self.offset = tf.Variable(10, dtype=tf.int64)

    module = Numbers()
    return saved(folder, lambda text: {"number": module.table.lookup(text) + module.offset}, module)
