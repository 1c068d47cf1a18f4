"""The backend of tests: says as JSON who it is and what it was asked. Needs the standard library only.

    echo.py [--port N] [--ignore-term]

POST /ready and POST /unready set what GET /ready answers; GET /slow?seconds=N answers late; GET /file/PATH shows a
file; POST /exit?status=N ends the program.
At SIGTERM it stops accepting, finishes what it is at, and ends; unless asked to ignore it.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from urllib.parse import parse_qs, urlsplit


def write_line(text: str) -> None:
    """Write to the log at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    ready = True
    stopping = False

    def do_GET(self) -> None:
        """Answer any GET."""
        url = urlsplit(self.path)
        if url.path == "/slow":
            write_line("asked to be slow")
            time.sleep(float(parse_qs(url.query)["seconds"][0]))
        if url.path.startswith("/file/"):
            self.answer(200, {"content": Path(url.path.removeprefix("/file")).read_text()})
            return
        self.answer(200 if url.path != "/ready" or Handler.ready else 503, self.describe())

    def do_POST(self) -> None:
        """Read the body, and obey."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        url = urlsplit(self.path)
        if url.path in {"/ready", "/unready"}:
            Handler.ready = url.path == "/ready"
        self.answer(200, self.describe())
        if url.path == "/exit":
            self.wfile.flush()
            os._exit(int(parse_qs(url.query).get("status", ["0"])[0]))

    do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815 - the names in the base class

    def describe(self) -> dict[str, object]:
        """Return who answers, and to what."""
        return {
            "pod": os.environ.get("POD_NAME") or socket.gethostname(),
            "namespace": os.environ.get("POD_NAMESPACE", ""),
            "address": self.connection.getsockname()[0],
            "client": self.client_address[0],
            "method": self.command,
            "path": self.path,
            "host": self.headers.get("host", ""),
            "headers": {name.lower(): value for name, value in self.headers.items()},
        }

    def answer(self, status: int, body: dict[str, object]) -> None:
        """Send *body*; the connection ends with it once the program shall end."""
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if Handler.stopping:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - the name in the base class
        """Write one line per request."""
        write_line(f"{self.command} {self.path}")


class Server(ThreadingHTTPServer):
    """Waits at its end for the requests that it is at."""

    daemon_threads = False
    request_queue_size = 1024

    def server_bind(self) -> None:
        """Bind without asking for a name, as the base class does: there is no name server."""
        TCPServer.server_bind(self)


def main() -> None:
    """Serve until asked to end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--ignore-term", action="store_true")
    options = parser.parse_args()
    server = Server(("0.0.0.0", options.port), Handler)

    def stop(*_: object) -> None:
        write_line("asked to end")
        if not options.ignore_term:
            Handler.stopping = True
            threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, stop)
    write_line(f"listening on {options.port}")
    server.serve_forever(poll_interval=0.05)
    server.socket.close()


if __name__ == "__main__":
    main()
