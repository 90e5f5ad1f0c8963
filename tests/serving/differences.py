"""Where `kformer serve` answers otherwise than TensorFlow Serving on purpose.

docs/serving.md has the same table, in its section "What differs". The cases in `cases_of_...` name its rows.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    what: str
    theirs: str  # what TensorFlow Serving does
    ours: str
    why: str


DIFFERENCES = {
    # Paths and methods
    "list": Difference(
        "`GET /v1/models`", "400", "the names of the models", "the page and `kformer translate --server` ask for them"
    ),
    "capitals": Difference(
        "`:PREDICT`, `/METADATA`",
        "400; the status",
        "as in small letters",
        "the case of the other parts of a path does not matter, either",
    ),
    "query": Difference(
        "a query, `?x=1`",
        "400 or 404: it is read as part of the path",
        "it is ignored",
        "proxies and browsers add them",
    ),
    "head": Difference("HEAD", "400", "as GET, without the body", "probes and browsers send it"),
    "methods": Difference(
        "DELETE, PUT and PATCH under `/v1/`", "400", "405 with `Allow`", "it is HTTP's code for a wrong method"
    ),
    "examples": Difference(
        "Classify, Regress and MultiInference",
        "answers from signatures of these methods; INVALID_ARGUMENT for others",
        "UNIMPLEMENTED, 501",
        "they take examples of features and not texts: ask a classifier by predict",
    ),
    "label": Difference(
        "the status by label",
        "the status of all versions, for any label",
        "the status of that version; 400 for an unknown label",
        "it is the question that was asked",
    ),
    "model of a label": Difference(
        "a label of a model that is not served", "INVALID_ARGUMENT", "NOT_FOUND", "the model is what is wrong"
    ),
    "status without a name": Difference(
        "the status of a model without a name", "NOT_FOUND", "INVALID_ARGUMENT", "as for the other calls"
    ),
    "init": Difference(
        "`__saved_model_init_op` in the metadata", "listed", "left out", "it is not for clients, and cannot be called"
    ),
    # JSON
    "rest of the body": Difference(
        "text behind the JSON object", "ignored", "400", "a second request in it would be lost without a word"
    ),
    "depth": Difference(
        "lists in thousands of levels beside the inputs",
        "ignored",
        "400",
        "Python's parser has a limit, and no input has it",
    ),
    "tokens": Difference(
        "`Inf`, `-Inf`, `-NaN`", "numbers", "400", "the documented tokens are `NaN`, `Infinity` and `-Infinity`"
    ),
    "too large": Difference(
        "a number beyond float64, `1e999`",
        "400",
        "infinite, as a number beyond float32 is in both",
        "so Python reads it",
    ),
    "twice": Difference(
        "a name twice in a row or beside `b64`",
        "the values of rows are shifted; 400 for `b64`",
        "the first counts, as elsewhere in both",
        "every row keeps its own values",
    ),
    "surrogate": Difference(
        "half of a surrogate pair, `\\ud83d`",
        "400",
        "a text, in which the model reads U+FFFD",
        "half of an emoji while somebody types",
    ),
    "dot": Difference("base64 with `.` in place of `=`", "read", "400", "no standard has it"),
    "not utf-8": Difference(
        "an output that is not UTF-8",
        "its bytes, which makes the answer no JSON",
        "U+FFFD",
        "clients can read the answer",
    ),
    # Tensors
    "unknown input": Difference(
        "an unknown name in the object of `inputs`", "ignored", "400", "a misspelt option would be lost without a word"
    ),
    "default": Difference(
        "REST: an input that has a default",
        "400 if it is missing",
        "the default, as over gRPC in both",
        "options are optional",
    ),
    "shape": Difference(
        "an input of another shape than the signature's",
        "goes to the graph, which may fail or answer",
        "INVALID_ARGUMENT",
        "it is refused before anything is computed, with the shape that is expected",
    ),
    "dimensions": Difference(
        "an input of unknown rank with more than 8 dimensions",
        "up to 254 are taken",
        "INVALID_ARGUMENT",
        "no model has them",
    ),
    "wrap": Difference(
        "an integer beyond int8, int16, uint8",
        "wraps around: 300 is 44",
        "INVALID_ARGUMENT",
        "a wrong number is no answer",
    ),
    "half": Difference(
        "float16 and uint16 over REST", "501 for inputs, 400 for outputs", "numbers", "as over gRPC in both"
    ),
    "types": Difference(
        "bfloat16 and complex numbers",
        "gRPC takes them; an output over REST is 400",
        "INVALID_ARGUMENT for inputs over gRPC; UNIMPLEMENTED, 501, for outputs",
        "NumPy has no bfloat16; exports have neither",
    ),
    "count": Difference(
        "a tensor with fewer strings, or more values, than its shape",
        "the last string is repeated, further values are dropped",
        "INVALID_ARGUMENT",
        "the client has made a mistake; one string, or fewer numbers, are repeated in both",
    ),
    "limits": Difference(
        "a request with more texts than `max_batch_size`", "400", "413", "it is HTTP's code for it; so are other limits"
    ),
}
