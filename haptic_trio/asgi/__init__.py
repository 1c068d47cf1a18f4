"""HTTP/1.1 and WebSocket server for ASGI applications, on Trio."""
