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
# It takes about 2 minutes on a CPU. On a Colab GPU, where it was not measured, it should take as long.

# %% tags=["install"]
# Installs kformer from the clone in which this notebook lies. In Colab it takes less than a minute: TensorFlow is there.
# %pip install --quiet "..[plots,serving]"

# %%
import os
import pathlib

OUTPUT = pathlib.Path(os.environ.get("KFORMER_NOTEBOOK_OUTPUT", "export-and-serve"))

# %% [markdown]
# ## 1. A SavedModel
#
# `cmudict` says how English words are spoken: letters in, sounds out. Before an export gets its name, it is tried: it
# must answer as the trained model does, in Python and outside of it.

# %%
import kformer

SIGNATURES = ["n_best", "score", "translate_detailed", "translate_with_options"]
translator = kformer.Translator.from_preset("cmudict")
path = kformer.export_saved_model(translator, OUTPUT / "cmudict", signatures=SIGNATURES)
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

# %% [markdown]
# `serving_default` gives the best answer, and its score: the logarithm of its probability, divided by the length
# penalty.

# %%
word = " ".join("attention")


def ask(signature, **inputs):
    found = loaded.signatures[signature](**{name: tf.constant(value) for name, value in inputs.items()})
    return {name: value.numpy().tolist() for name, value in found.items()}


ask("serving_default", text=[word])

# %% [markdown]
# `n_best` gives as many answers as the beam is wide, and `score` the probability of an answer of yours.

# %%
print(ask("n_best", text=[word])["translation"][0])
print(ask("score", text=[word, word], translation=["AH T EH N SH AH N", "AE T EH N SH AH N"])["log_probability"])

# %% [markdown]
# The detailed signature says which letters each sound comes from. (What is missing in a row is attention to the end of
# the word, which has no column.)

# %%
from kformer import visualization

detailed = loaded.signatures["translate_detailed"](text=tf.constant([word]))
visualization.plot_attention(visualization.read_detailed(detailed))

# %% [markdown]
# ## 3. Precisions
#
# The same model in three precisions. int8 is a quarter of the size, and fast on processors with VNNI instructions,
# which multiply 8-bit integers; bfloat16 is fast on processors with AVX512-BF16 or AMX. Here are their size, the time
# for 200 words in one batch on this machine, and how many of the 200 answers are those of float32:

# %%
import time

from kformer.data import load_corpus

words = tf.constant([source for source, _ in load_corpus("cmudict").test[:200]])
exports = {"float32": path}
for precision in ("bfloat16", "int8"):
    exports[precision] = kformer.export_saved_model(translator, OUTPUT / f"cmudict-{precision}", precision=precision)
answers = {}
for precision, folder in exports.items():
    megabytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    run = tf.saved_model.load(str(folder)).signatures["serving_default"]
    answers[precision] = run(text=words)["translation"].numpy()  # the first call also prepares the operations
    began = time.perf_counter()
    run(text=words)
    seconds = time.perf_counter() - began
    same = (answers[precision] == answers["float32"]).sum()
    print(f"{precision:8} {megabytes:5.1f} MB  {seconds:5.2f} s  {same} of {len(words)} answers as in float32")

# %% [markdown]
# ## 4. A server
#
# `kformer serve` speaks the same REST and gRPC as TensorFlow Serving. Here it runs beside the notebook. At its address
# it has a page to try the model. On your own machine, open the address in a browser; in Colab, call
# `google.colab.output.serve_kernel_port_as_window(rest)`.

# %%
import subprocess
import sys
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
is_running = server.poll() is None
print(f"ready: http://127.0.0.1:{rest}" if is_running else (OUTPUT / "server.log").read_text())

# %% [markdown]
# REST, with nothing but Python's own library:

# %%
import json

body = json.dumps({"instances": [word, " ".join("serve")]}).encode()
request = urllib.request.Request(f"http://127.0.0.1:{rest}/v1/models/cmudict:predict", body)
json.load(urllib.request.urlopen(request))

# %% [markdown]
# `translate_with_options` takes another search in each request. A server fills in the options that are left out. Here, at
# most five tokens are drawn at random:

# %%
inputs = {"text": [word], "max_length": 5, "temperature": 1.0, "seed": 1}
body = json.dumps({"signature_name": "translate_with_options", "inputs": inputs}).encode()
json.load(urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{rest}/v1/models/cmudict:predict", body)))

# %% [markdown]
# gRPC, with the stubs of TensorFlow Serving (`pip install tensorflow-serving-api`):

# %%
import grpc as grpc_package
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

request = predict_pb2.PredictRequest()
request.model_spec.name = "cmudict"
request.inputs["text"].CopyFrom(tf.make_tensor_proto([word]))
with grpc_package.insecure_channel(f"127.0.0.1:{grpc}") as channel:
    response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=10)
tf.make_ndarray(response.outputs["translation"])

# %% [markdown]
# The client of kformer does either. It repeats requests that failed for a moment and are safe to repeat, and divides
# long lists into several requests:

# %%
from kformer.client import Client

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
# The same folder is a base path of TensorFlow Serving. It has warm-up requests and a server's configuration:
#
# ```
# docker run -p 8500:8500 -p 8501:8501 -v $PWD/export-and-serve/cmudict:/models/cmudict -e MODEL_NAME=cmudict \
#     tensorflow/serving --enable_batching --batching_parameters_file=/models/cmudict/batching.config
# ```
#
# Docker does not run in Colab, so this notebook cannot show it. The tests of kformer load exports as this server does:
# without Python code of the model, in the versions of TensorFlow that `docs/serving.md` names. `kformer lint DIR
# --server-version 2.16` says what an older server would lack. The folder `export/` of the repository has a compose file
# and manifests for Kubernetes.
