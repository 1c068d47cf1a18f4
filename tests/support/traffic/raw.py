"""Requests over sockets, byte by byte as a test writes them."""

import http.client
import socket
import ssl

from tests.support.traffic.servers import PATIENCE, Answer


def exchange(port: int, *lines: str, tls: ssl.SSLContext | None = None, server_name: str | None = None) -> Answer:
    """Send *lines* as the head of a request, `Connection: close` after them, and return the answer."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
        connection = tls.wrap_socket(plain, server_hostname=server_name) if tls else plain
        with connection:
            connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1"))
            with http.client.HTTPResponse(connection, method=lines[0].split(" ")[0]) as response:
                response.begin()
                headers = {name.lower(): value for name, value in response.getheaders()}
                return Answer(response.status, response.read().decode("latin-1"), headers)
