"""A server with TensorFlow Serving's REST, whose first answers a test gives; its model turns texts into capitals."""

import http.server
import json
import threading
import time

STRING, FLOAT = {"dtype": "DT_STRING"}, {"dtype": "DT_FLOAT"}
METADATA = {
    "serving_default": {"inputs": {"text": STRING}, "outputs": {"translation": STRING, "score": FLOAT}},
    "lengths": {"inputs": {"text": STRING}, "outputs": {"length": {"dtype": "DT_INT64"}}},
}


class ScriptedRest:
    """Answers requests by the next of `answers`, and then as the model does.

    Args:
        answers: Of each a status, a body, and seconds to wait before it or headers. Without a status the connection is
            closed.
        port: 0 for one that is free.
    """

    def __init__(self, answers=(), port=0):
        self.answers, self.requests, self.headers = list(answers), [], []
        self.under_way, self.most_at_once, lock = 0, 0, threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.answer(None)

            def do_POST(self):
                self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def answer(self, body):
                with lock:
                    outer.requests.append((self.path, body))
                    outer.headers.append(self.headers)
                    outer.under_way += 1
                    outer.most_at_once = max(outer.most_at_once, outer.under_way)
                self.write(body)
                with lock:
                    outer.under_way -= 1

            def write(self, body):
                script = outer.answers.pop(0) if outer.answers else (200, json.dumps(outer.usual_answer(body)))
                status, written, more = (*script, {})[:3]
                if isinstance(more, int | float):
                    time.sleep(more)
                    more = {}
                if status is None:
                    self.close_connection = True  # as a server that is killed
                    return
                self.send_response(status)
                for name, value in {"Content-Length": len(written.encode()), **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(written.encode())

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/models/m"

    def usual_answer(self, body):
        """In rows or in columns, as the request is; the signature `lengths` has one output."""
        if body is None:
            return {"model_spec": {}, "metadata": {"signature_def": {"signature_def": METADATA}}}
        if "instances" in body:
            return {"predictions": [{"translation": text.upper(), "score": 0.0} for text in body["instances"]]}
        texts = body["inputs"]["text"]
        if body["signature_name"] == "lengths":
            return {"outputs": [len(text) for text in texts]}
        return {"outputs": {"translation": [text.upper() for text in texts], "score": [0.0] * len(texts)}}

    @property
    def predictions(self):
        """The bodies of the predict requests."""
        return [body for _, body in self.requests if body is not None]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()
