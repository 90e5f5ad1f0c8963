# ---
# jupyter:
#   accelerator: GPU
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Export and serve
#
# An export is one SavedModel that takes strings and gives strings. This notebook makes one, looks at its signatures and
# precisions, and serves it: with `kformer serve` over REST and gRPC here, and with TensorFlow Serving elsewhere.
#
# It takes about 4 minutes on a CPU, and as long on a Colab GPU.

# %% tags=["install"]
# In Colab this installs kformer in less than a minute. From a clone, in its folder `notebooks/`, it does the same.
# %pip install --quiet "..[plots,serving]"

# %%
import os
import pathlib

OUTPUT = pathlib.Path(os.environ.get("KFORMER_NOTEBOOK_OUTPUT", "export-and-serve"))

# %% [markdown]
# ## 1. A SavedModel
#
# `cmudict` says how English words are spoken: letters in, sounds out. Before an export gets its name, it is tried: it must
# answer as the trained model does, in Python and outside of it.

# %%
import kformer

translator = kformer.Translator.from_preset("cmudict")
path = kformer.export_saved_model(translator, OUTPUT / "cmudict", signatures=["n_best", "score", "translate_detailed"])
for file in sorted(path.parent.rglob("*")):
    if file.is_file():
        print(f"{file.stat().st_size:10,}  {file.relative_to(path.parent)}")

# %% [markdown]
# ## 2. Its signatures
#
# Any program with TensorFlow and tensorflow-text can load it. It needs no kformer.

# %%
import tensorflow as tf

loaded = tf.saved_model.load(str(path))
for name, signature in loaded.signatures.items():
    outputs = {key: tuple(value.shape) for key, value in signature.structured_outputs.items()}
    print(f"{name}: {sorted(signature.structured_input_signature[1])} -> {outputs}")

# %%
word = " ".join("attention")
answer = loaded.signatures["serving_default"](text=tf.constant([word]))
answer["translation"].numpy(), answer["score"].numpy()

# %% [markdown]
# The detailed signature says which letters each sound comes from:

# %%
from kformer import visualization

detailed = loaded.signatures["translate_detailed"](text=tf.constant([word]))
visualization.plot_attention(visualization.read_detailed(detailed))

# %% [markdown]
# ## 3. Precisions
#
# int8 is a quarter of the size, and fast on processors with VNNI; bfloat16 is fast where the processor multiplies it.

# %%
small = kformer.export_saved_model(translator, OUTPUT / "cmudict-int8", precision="int8")


def megabytes(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


print(f"float32 {megabytes(path):.1f} MB, int8 {megabytes(small):.1f} MB")
tf.saved_model.load(str(small)).signatures["serving_default"](text=tf.constant([word]))["translation"].numpy()

# %% [markdown]
# ## 4. A server
#
# `kformer serve` speaks the same REST and gRPC as TensorFlow Serving. Here it runs beside the notebook; it also has a page
# at its address, to play with.

# %%
import subprocess
import sys
import time
import urllib.request


def free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


rest, grpc = free_port(), free_port()
command = [sys.executable, "-m", "kformer", "serve", str(path.parent), "--name", "cmudict"]
log = open(OUTPUT / "server.log", "w")
server = subprocess.Popen([*command, "--rest-port", str(rest), "--grpc-port", str(grpc)], stdout=log, stderr=log)


def is_ready():
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{rest}/readyz").status == 200
    except OSError:
        return False


while server.poll() is None and not is_ready():  # it loads the model, and runs its warm-up requests
    time.sleep(0.5)
print("ready" if server.poll() is None else (OUTPUT / "server.log").read_text())

# %% [markdown]
# REST, with nothing but Python's own library:

# %%
import json

body = json.dumps({"instances": [word, " ".join("serve")]}).encode()
request = urllib.request.Request(f"http://127.0.0.1:{rest}/v1/models/cmudict:predict", body)
json.load(urllib.request.urlopen(request))

# %% [markdown]
# The client of kformer tries again what may be tried again, and divides long lists:

# %%
from kformer.serving import Client

with Client(f"grpc://127.0.0.1:{grpc}/cmudict") as client:
    print(client.translate([" ".join(text) for text in ("encoder", "decoder")]))

# %%
with Client(f"http://127.0.0.1:{rest}/v1/models/cmudict") as client:
    print(client.translate([" ".join(text) for text in ("encoder", "decoder")]))

# %%
server.terminate()  # SIGTERM: it answers what it has taken, and ends
print("exit status", server.wait(), (OUTPUT / "server.log").read_text().splitlines()[-1])
log.close()

# %% [markdown]
# ## 5. TensorFlow Serving
#
# The same folder is a base path of TensorFlow Serving. It brings warm-up requests and a server's configuration:
#
# ```
# docker run -p 8500:8500 -p 8501:8501 -v $PWD/export-and-serve/cmudict:/models/cmudict -e MODEL_NAME=cmudict \
#     tensorflow/serving --enable_batching --batching_parameters_file=/models/cmudict/batching.config
# ```
#
# `kformer lint DIR --server-version 2.16` says what an older server would lack. The folder `export/` of the repository has a
# compose file and manifests for Kubernetes.
