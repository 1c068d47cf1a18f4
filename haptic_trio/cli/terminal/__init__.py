"""The terminal UI of `debug`: the tabs of the console page, over the console's websocket."""
