"""Lists the operations that each TensorFlow Serving has, for `kformer export --server-version`.

    python export/list_operations.py            # rewrites kformer/export/server_operations.json; half an hour, 8 GB

A server of a version has the operations of the TensorFlow of the same version, and those of its tensorflow-text. Each
version is installed from PyPI into a separate environment, which prints the operations that are registered there. All
these versions have wheels for Python 3.11, except tensorflow-text 2.13, for which 2.12 is asked.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

TARGET = pathlib.Path(__file__).parents[1] / "kformer" / "export" / "server_operations.json"
# Minor version of the server: the versions of tensorflow-cpu and of tensorflow-text that are asked.
WHEELS = {
    "2.12": ("2.12.1", "2.12.1"),
    "2.13": ("2.13.1", None),
    "2.14": ("2.14.1", "2.14.0"),
    "2.15": ("2.15.1", "2.15.0"),
    "2.16": ("2.16.2", "2.16.1"),
    "2.17": ("2.17.1", "2.17.0"),
    "2.18": ("2.18.1", "2.18.1"),
    "2.19": ("2.19.1", "2.19.0"),
    "2.20": ("2.20.0", "2.20.1"),
    "2.21": ("2.21.0", "2.21.1"),
}
# Prints the names of the operations of TensorFlow and those of tensorflow-text.
ASKED = """
import glob, json, os, sysconfig
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session as c_api

def registered():
    operations = op_def_pb2.OpList.FromString(c_api.TF_GetBuffer(c_api.TF_GetAllOpList()))
    return {operation.name for operation in operations.op}

core = registered()
for library in glob.glob(os.path.join(sysconfig.get_path("platlib"), "tensorflow_text", "**", "*.so"), recursive=True):
    tf.load_op_library(library)
print(json.dumps({"core": sorted(core), "text": sorted(registered() - core)}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    found = {version: ask(*wheels) for version, wheels in WHEELS.items()}
    found["2.13"]["text"] = found["2.12"]["text"]
    versions = list(WHEELS)
    merged = {version: {*found[version]["core"], *found[version]["text"]} for version in versions}
    TARGET.write_text(json.dumps(summary(versions, merged), indent=0, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{TARGET}: {len(set().union(*merged.values())):,} operations")


def ask(tensorflow: str, text: str | None) -> dict[str, list[str]]:
    """The operations of one version, those of TensorFlow and those of tensorflow-text."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [f"{folder}/bin/pip", "install", "--quiet"]
        subprocess.run([*pip, f"tensorflow-cpu=={tensorflow}"], check=True)
        if text is not None:
            subprocess.run([*pip, "--no-deps", f"tensorflow-text=={text}"], check=True)
        answer = subprocess.run([f"{folder}/bin/python", "-c", ASKED], check=True, capture_output=True, text=True)
    print(f"tensorflow {tensorflow}", flush=True)
    return json.loads(answer.stdout.splitlines()[-1])


def summary(versions: list[str], merged: dict[str, set[str]]) -> dict[str, object]:
    """The operations that all versions have, and for each of the rest which versions have it."""
    names = set().union(*merged.values())
    everywhere = {name for name in names if all(name in merged[version] for version in versions)}
    some = {name: [version for version in versions if name in merged[version]] for name in names - everywhere}
    return {"versions": versions, "everywhere": sorted(everywhere), "some": some}


if __name__ == "__main__":
    main()
