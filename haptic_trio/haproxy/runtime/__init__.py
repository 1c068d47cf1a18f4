"""The text protocol of HAProxy's sockets, without I/O: conversations, replies, read-back."""
