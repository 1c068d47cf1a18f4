"""The debug console: what a running controller shows of itself, over a websocket and on a web page."""
