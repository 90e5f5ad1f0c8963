"""A server that answers as `kformer serve` does, but slowly, otherwise or not at all when a test says so."""

import http.server
import json
import mimetypes
import pathlib
import re
import threading
import urllib.parse

from reversal import ANSWERS

import kformer
from kformer.serving.access import PAGE_FILES

PAGE = pathlib.Path(kformer.__file__).parent / "serving" / "page"


class FakeServer:
    """The page, and REST over models that turn lines around.

    Attributes:
        models: Each model's signatures, by its name.
        others: What models of other tasks answer: functions of a text, by the model's name.
        version: The version of all models.
        refusals: Pairs of a status and words, with which the next requests for a translation are refused.
        held: For a text, the event that its answer waits for.
        flags: Values of `divided`, `overlong`, `truncated` and `short` that take the place of the rule's.
        token: The bearer token that requests must have; None for no token.
        asked: Signature and text of every request for a translation.
        url: Where the page is.
    """

    def __init__(self):
        self.models, self.version = {"reversal": tuple(ANSWERS)}, 7
        self.others = {}
        self.refusals, self.held, self.flags, self.token, self.asked = [], {}, {}, None, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path in PAGE_FILES:
                    name = PAGE_FILES[self.path]
                    self.send(200, (PAGE / name).read_bytes(), str(mimetypes.guess_type(name)[0]))
                else:
                    self.send_json(*outer.answer(self.path, self.headers["Authorization"], None))

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_json(*outer.answer(self.path, self.headers["Authorization"], body))

            def send_json(self, status, content):
                self.send(status, json.dumps(content).encode(), "application/json")

            def send(self, status, content, kind):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Security-Policy", "default-src 'self'")
                if status == 503:
                    self.send_header("Retry-After", "1")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *arguments):
                pass  # The page ends requests that it needs no more.

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for event in self.held.values():
            event.set()
        self.stop()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, path, authorization, body):
        """Status and content of one request of the REST interface."""
        if self.token and authorization != f"Bearer {self.token}":
            return 401, {"error": "This server wants a token"}
        if path == "/v1/models":
            return 200, {"models": [*self.models]}
        found = re.fullmatch(r"/v1/models/([^/]+)(/.*)?", path)
        name = urllib.parse.unquote(found[1]) if found else ""
        if found and name in self.models and found[2] == "/metadata":
            spec = {"name": name, "signature_name": "", "version": str(self.version)}
            definitions = {signature: {} for signature in self.models[name]}
            return 200, {"model_spec": spec, "metadata": {"signature_def": {"signature_def": definitions}}}
        if body is None or name not in self.models or f"/versions/{self.version}:" not in path:
            return 404, {"error": f"Servable not found for request: {path}"}
        [text] = body["inputs"]["text"]
        signature = body["signature_name"]
        if signature != "known_tags":
            self.asked.append((signature, text))
        if text in self.held:
            assert self.held[text].wait(30)
        if self.refusals:
            status, words = self.refusals.pop(0)
            return status, {"error": words}
        if signature == "known_tags":
            return 200, {"outputs": [["<2es>", "<2en>"]]}  # the name of the only output is left out
        outputs = self.others.get(path.split("/")[3], ANSWERS[signature])(text)
        outputs |= {name: value for name, value in self.flags.items() if name in outputs}
        return 200, {"outputs": {name: [value] for name, value in outputs.items()}}
