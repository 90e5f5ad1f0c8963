"""Paths and methods of REST, what TensorFlow Serving answers, and `kformer serve`.

The server has two models of typed_model.py: `typed` with the versions 1, 7 and 1234567890123456789 and the labels
`stable` (1) and `a:b/c` (7), and `one & two` with version 1. TensorFlow Serving's answers were read in
http_rest_api_handler.cc, http_rest_api_util.cc, http_server.cc and their tests.
"""

import gzip
from typing import NamedTuple

NEWEST = 1234567890123456789


class Path(NamedTuple):
    """An answer is a status, or a status and a part of the body, which is JSON without blanks."""

    what: str
    request: str  # method and path
    theirs: object
    ours: object = None  # None: as theirs
    differs: str = ""
    headers: dict | None = None
    body: str | bytes = '{"instances": ["a"]}'  # of a POST


_ANSWER = (200, '{"predictions":["a"]}')
_MALFORMED = (400, "Malformed request: ")
_UNKNOWN = (404, "Servable not found for request: ")

# fmt: off
PATHS = [
    # Predict
    Path("predict", "POST /v1/models/typed:predict", _ANSWER),
    Path("predict with a version", "POST /v1/models/typed/versions/1:predict", _ANSWER),
    Path("predict with a version of 19 digits", f"POST /v1/models/typed/versions/{NEWEST}:predict", _ANSWER),
    Path("predict with zeros before the version", "POST /v1/models/typed/versions/0000000000000000000000000001:predict", _ANSWER),
    Path("predict with a label", "POST /v1/models/typed/labels/stable:predict", _ANSWER),
    Path("predict with a label of other characters", "POST /v1/models/typed/labels/a%3Ab%2Fc:predict", _ANSWER),
    Path("predict with a name of other characters", "POST /v1/models/one%20%26%20two:predict", _ANSWER),
    Path("a letter of the name in percent signs", "POST /v1/models/t%79ped:predict", _ANSWER),
    Path("the path in capitals", "POST /V1/MODELS/typed/VERSIONS/1:predict", _ANSWER),
    Path("the path in both cases", "POST /v1/Models/typed/Labels/stable:predict", _ANSWER),
    Path("the method in capitals", "POST /v1/models/typed:PREDICT", _MALFORMED, _ANSWER, "capitals"),
    Path("the name in capitals", "POST /v1/models/TYPED:predict", _UNKNOWN),
    Path("the label in capitals", "POST /v1/models/typed/labels/STABLE:predict", (400, "Unrecognized servable version label")),
    Path("another type of content", "POST /v1/models/typed:predict", _ANSWER, headers={"Content-Type": "text/plain"}),
    Path("no type of content is asked for", "POST /v1/models/typed:predict", _ANSWER, headers={"Accept": "text/html"}),
    Path("a compressed body", "POST /v1/models/typed:predict", _ANSWER, headers={"Content-Encoding": "gzip"}, body=gzip.compress(b'{"instances": ["a"]}')),
    Path("a query", "POST /v1/models/typed:predict?x=1", _MALFORMED, _ANSWER, "query"),
    Path("an unknown model", "POST /v1/models/foo:predict", (404, "Servable not found for request: Latest(foo)")),
    Path("an unknown model with a version", "POST /v1/models/foo/versions/50:predict", (404, "Servable not found for request: Specific(foo, 50)")),
    Path("an unknown version", "POST /v1/models/typed/versions/99:predict", (404, "Servable not found for request: Specific(typed, 99)")),
    Path("a name that only begins like a model's", "POST /v1/models/typed99:predict", _UNKNOWN),
    Path("an unknown label", "POST /v1/models/typed/labels/new:predict", (400, "Unrecognized servable version label")),
    Path("a label of an unknown model", "POST /v1/models/foo/labels/stable:predict", (400, "Unrecognized servable version label"), _UNKNOWN, "model of a label"),
    Path("a version that is the label's name", "POST /v1/models/typed/versions/stable:predict", _MALFORMED),
    Path("a label that is a version's number", "POST /v1/models/typed/labels/1:predict", (400, "Unrecognized servable version label")),
    Path("the largest version that there can be", "POST /v1/models/typed/versions/9223372036854775807:predict", _UNKNOWN),
    Path("a version beyond 63 bits", "POST /v1/models/typed/versions/9223372036854775808:predict", (400, "9223372036854775808")),
    Path("a version beyond 64 bits", "POST /v1/models/typed/versions/18446744073709551616:regress", (400, "18446744073709551616")),
    Path("a version of 5,000 digits", f"POST /v1/models/typed/versions/{'9' * 5000}:predict", 400),
    Path("a version below zero", "POST /v1/models/typed/versions/-1:predict", _MALFORMED),
    Path("a version with a point", "POST /v1/models/typed/versions/1.0:predict", _MALFORMED),
    Path("a version in percent signs", "POST /v1/models/typed/versions/%31:predict", _MALFORMED),
    Path("a version of other digits", "POST /v1/models/typed/versions/%D9%A1:predict", _MALFORMED),
    Path("a version without a number", "POST /v1/models/typed/versions/:predict", _MALFORMED),
    Path("a label without a name", "POST /v1/models/typed/labels/:predict", _MALFORMED),
    Path("version and label", "POST /v1/models/typed/versions/1/labels/stable:predict", _MALFORMED),
    Path("`version` for `versions`", "POST /v1/models/typed/version/1:predict", _MALFORMED),
    Path("`label` for `labels`", "POST /v1/models/typed/label/stable:predict", _MALFORMED),
    Path("no name", "POST /v1/models/:predict", _MALFORMED),
    Path("no model", "POST /v1/models:predict", _MALFORMED),
    Path("no method", "POST /v1/models/typed", _MALFORMED),
    Path("an unknown method", "POST /v1/models/typed:translate", _MALFORMED),
    Path("an empty method", "POST /v1/models/typed:", _MALFORMED),
    Path("two methods", "POST /v1/models/typed:x:predict", _MALFORMED),
    Path("the method before the version", "POST /v1/models/typed:predict/versions/1", _MALFORMED),
    Path("a slash at the end", "POST /v1/models/typed:predict/", _MALFORMED),
    Path("two slashes", "POST /v1/models//typed:predict", _MALFORMED),
    Path("a slash in the name", "POST /v1/models/a/typed:predict", _MALFORMED),
    Path("a slash in the name, in percent signs", "POST /v1/models/a%2Ftyped:predict", (404, "Latest(a/typed)")),
    Path("a colon in the name, in percent signs", "POST /v1/models/typed%3Apredict", _MALFORMED),
    Path("a folder above", "POST /v1/models/typed/../typed:predict", _MALFORMED),
    Path("predict by GET", "GET /v1/models/typed:predict", _MALFORMED),
    Path("a list to POST to", "POST /v1/models", _MALFORMED),
    Path("metadata by POST", "POST /v1/models/typed/metadata", _MALFORMED),
    Path("an unknown model and a body that is no JSON", "POST /v1/models/foo:predict", (400, "JSON Parse error"), body="{"),
    Path("an unknown model and a wrong signature", "POST /v1/models/foo:predict", (400, "must be a string value"), body='{"signature_name": 1}'),
    Path("an unknown model and no inputs", "POST /v1/models/foo:predict", _UNKNOWN, body="{}"),
    Path("an unknown label and a wrong input", "POST /v1/models/typed/labels/new:predict", (400, "Unrecognized servable version label"), body='{"instances": [1]}'),
    # Examples
    Path("classify", "POST /v1/models/typed:classify", 400, (501, "This server answers :predict"), "examples", body='{"examples": [{"x": 1}]}'),
    Path("regress with a version", "POST /v1/models/typed/versions/1:regress", 400, (501, "This server answers :predict"), "examples", body='{"examples": [{"x": 1}]}'),
    Path("classify with a label", "POST /v1/models/typed/labels/stable:classify", 400, (501, "This server answers :predict"), "examples", body='{"examples": [{"x": 1}]}'),
    Path("classify by GET", "GET /v1/models/typed:classify", _MALFORMED),
    Path("regress with a word for the version", "POST /v1/models/typed/versions/HELLO:regress", _MALFORMED),
    # Status
    Path("the status", "GET /v1/models/typed", (200, f'{{"model_version_status":[{{"version":"{NEWEST}","state":"AVAILABLE","status":{{"error_code":"OK","error_message":""}}}},{{"version":"7",')),
    Path("the status of a version", "GET /v1/models/typed/versions/7", (200, '{"model_version_status":[{"version":"7","state":"AVAILABLE","status":{"error_code":"OK","error_message":""}}]}')),
    Path("the status of a label's version", "GET /v1/models/typed/labels/stable", (200, f'[{{"version":"{NEWEST}"'), (200, '{"model_version_status":[{"version":"1","state":"AVAILABLE","status":{"error_code":"OK","error_message":""}}]}'), "label"),
    Path("the status of an unknown label", "GET /v1/models/typed/labels/new", (200, f'[{{"version":"{NEWEST}"'), (400, "Unrecognized servable version label"), "label"),
    Path("the status in capitals", "GET /V1/MODELS/typed/VERSIONS/7", (200, '[{"version":"7"')),
    Path("the status of a name of other characters", "GET /v1/models/one%20%26%20two", (200, '[{"version":"1"')),
    Path("the status of an unknown model", "GET /v1/models/foo", (404, "Could not find any versions of model foo")),
    Path("the status of a name with all reserved characters", "GET /v1/models/a%21%23%24%25%26%27%28%29%2A%2B%2C%2F%3A%3B%3D%3F%40%5B%5D", (404, "model a!#$%&'()*+,/:;=?@[]")),
    Path("the status of an unknown version", "GET /v1/models/typed/versions/99", (404, "Could not find")),
    Path("the status of a version that is no number", "GET /v1/models/typed/versions/x", _MALFORMED),
    Path("the status of a version beyond 63 bits", "GET /v1/models/typed/versions/9223372036854775808", (400, "9223372036854775808")),
    Path("the status with a slash at the end", "GET /v1/models/typed/", _MALFORMED),
    Path("the status with a query", "GET /v1/models/typed?x=1", (404, "Could not find any versions of model typed?x=1"), (200, "AVAILABLE"), "query"),
    Path("the status by HEAD", "HEAD /v1/models/typed", 400, 200, "head"),
    Path("a model called metadata", "GET /v1/models/metadata", (404, "model metadata")),
    Path("the models", "GET /v1/models", (400, "Missing model name in request"), (200, '{"models":["one & two","typed"]}'), "list"),
    Path("the models with a slash at the end", "GET /v1/models/", _MALFORMED),
    # Metadata
    Path("the metadata", "GET /v1/models/typed/metadata", (200, f'{{"model_spec":{{"name":"typed","version":"{NEWEST}","signature_name":""}},"metadata":{{"signature_def":{{"signature_def":{{')),
    Path("the type and the shape of an input", "GET /v1/models/typed/metadata", (200, '"dtype":"DT_FLOAT","tensor_shape":{"dim":[{"size":"-1","name":""},{"size":"3","name":""}],"unknown_rank":false}')),
    Path("the method of a signature", "GET /v1/models/typed/metadata", (200, '"method_name":"tensorflow/serving/predict"')),
    Path("the signature that prepares the model", "GET /v1/models/typed/metadata", (200, '"__saved_model_init_op":{'), (200, '"bfloat16":{'), "init"),
    Path("the metadata of a version", "GET /v1/models/typed/versions/7/metadata", (200, '"version":"7"')),
    Path("the metadata of a label's version", "GET /v1/models/typed/labels/stable/metadata", (200, '"version":"1"')),
    Path("the metadata of a label of other characters", "GET /v1/models/typed/labels/a%3Ab%2Fc/metadata", (200, '"version":"7"')),
    Path("the metadata in capitals", "GET /v1/models/typed/METADATA", (200, '"state":"AVAILABLE"'), (200, '"model_spec"'), "capitals"),
    Path("the metadata by HEAD", "HEAD /v1/models/typed/metadata", 400, 200, "head"),
    Path("the metadata of an unknown model", "GET /v1/models/foo/metadata", _UNKNOWN),
    Path("the metadata of an unknown version", "GET /v1/models/typed/versions/99/metadata", _UNKNOWN),
    Path("the metadata of an unknown label", "GET /v1/models/typed/labels/new/metadata", (400, "Unrecognized servable version label")),
    Path("something else than the metadata", "GET /v1/models/typed/signatures", _MALFORMED),
    Path("more than the metadata", "GET /v1/models/typed/metadata/signature_def", _MALFORMED),
    Path("a method behind the metadata", "GET /v1/models/typed/metadata:predict", _MALFORMED),
    # Other methods and paths
    Path("a browser asks for leave", "OPTIONS /v1/models/typed:predict", 200, headers={"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}),
    Path("a browser asks for leave on any path", "OPTIONS /v1/foo", 200, headers={"Origin": "http://example.org"}),
    Path("OPTIONS without an origin", "OPTIONS /v1/models/typed:predict", 400),
    Path("OPTIONS with an origin that is none", "OPTIONS /v1/models/typed:predict", 400, headers={"Origin": "null"}),
    Path("DELETE", "DELETE /v1/models/typed", 400, (405, "Method Not Allowed"), "methods"),
    Path("PUT", "PUT /v1/models/typed:predict", 400, (405, "Method Not Allowed"), "methods"),
    Path("PATCH", "PATCH /v1/models/typed:predict", 400, (405, "Method Not Allowed"), "methods"),
    Path("another path of v1 by GET", "GET /v1/foo", _MALFORMED),
    Path("another path of v1 by POST", "POST /v1/foo", _MALFORMED),
    Path("v1 alone with a slash", "GET /v1/", _MALFORMED),
    Path("v1 alone", "GET /v1", 404),
    Path("v2", "GET /v2/models/typed", 404),
    Path("v2 by POST", "POST /v2/models/typed/infer", 404),
    Path("two slashes in front", "GET //v1/models/typed", 404),
    Path("a page that is not there", "GET /index", 404),
    Path("another page that is not there", "GET /statuspage", 404),
]
# fmt: on
