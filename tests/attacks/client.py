"""The victim's client, a process of its own: it sends one request after another until its standard input ends.

Nothing that the controller or a test computes makes its requests look slow.
"""

import json
import select
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE = 20.0


def request(port: int, host: str, where: str, tls: ssl.SSLContext | None) -> bytes:
    """Send one request on a new connection, and return the whole answer."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
        connection = tls.wrap_socket(plain, server_hostname=host) if tls is not None else plain
        with connection:
            connection.sendall(f"GET {where} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while chunk := connection.recv(65_536):
                answer += chunk
            return answer


def main(host: str, authority: Path, *targets: str) -> dict[str, Any]:
    """Send requests to *targets*, such as `https:443:/`, over and over; return how they went."""
    context = ssl.create_default_context(cafile=str(authority))
    found: dict[str, Any] = {"requests": 0, "slowest": 0.0, "failures": []}
    while True:
        for target in targets:
            scheme, port, where = target.split(":", 2)
            began = time.monotonic()
            try:
                answer = request(int(port), host, where, context if scheme == "https" else None)
            except OSError as exc:
                answer = repr(exc).encode()
            found["slowest"] = max(found["slowest"], time.monotonic() - began)
            found["requests"] += 1
            if b" 200 OK\r\n" not in answer or b"\r\n\r\nvictim\n" not in answer:
                found["failures"].append(f"{target}: {answer[:300]!r}")
            # At least one request, however soon the attack is over.
            if select.select([sys.stdin], [], [], 0.005)[0]:
                return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])))
