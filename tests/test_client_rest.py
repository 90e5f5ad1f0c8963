"""The client of export/, beside a server that answers as TensorFlow Serving does."""

import http.server
import json
import pathlib
import subprocess
import sys
import threading

import pytest

CLIENT = pathlib.Path(__file__).parents[1] / "export" / "client_rest.py"

pytestmark = pytest.mark.tensorflow_only  # that is: once


class Server:
    """Answers requests by the next of `answers` (a status and a body), and then with the texts in capitals."""

    def __init__(self, answers):
        self.answers, self.requests = list(answers), []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, body))
                loud = [{"translation": text.upper(), "score": 0.0} for text in body["instances"]]
                status, answer = outer.answers.pop(0) if outer.answers else (200, json.dumps({"predictions": loud}))
                if status is None:
                    self.connection.close()  # as a server that is killed
                    return
                self.send_response(status)
                self.end_headers()
                self.wfile.write(answer.encode())

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/models/m"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()


def run(url, lines, tries=3):
    command = [sys.executable, str(CLIENT), "--url", url, "--tries", str(tries)]
    return subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=60)


def test_lines_go_out_in_batches_and_come_back_in_order():
    lines = [f"line {number}" for number in range(70)]
    with Server([]) as server:
        done = run(server.url, "\n".join(lines))
    assert done.stdout.splitlines() == [line.upper() for line in lines]
    assert [path for path, _ in server.requests] == ["/v1/models/m:predict"] * 3
    assert [len(body["instances"]) for _, body in server.requests] == [32, 32, 6]


@pytest.mark.parametrize("busy", [(503, '{"error": "loading"}'), (429, "{}"), (None, "")], ids=str)
def test_a_busy_server_is_asked_again(busy):
    with Server([busy]) as server:
        done = run(server.url, "hello")
    assert (done.returncode, done.stdout) == (0, "HELLO\n")
    assert len(server.requests) == 2


def test_the_words_of_a_server_that_refuses_are_shown_and_it_is_not_asked_again():
    with Server([(400, '{"error": "Batch too large"}')]) as server:
        done = run(server.url, "hello")
    assert done.returncode == 1
    assert done.stderr == f"client_rest.py: {server.url} answers 400: Batch too large\n"
    assert len(server.requests) == 1


def test_a_server_that_stays_away_is_told_without_a_traceback():
    with Server([]) as server:
        url = server.url
    done = run(url, "hello", tries=1)
    assert done.returncode == 1
    assert done.stderr.startswith(f"client_rest.py: {url} does not answer: ")
    assert "Traceback" not in done.stderr
