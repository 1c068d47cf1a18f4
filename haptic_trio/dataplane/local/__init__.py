"""One HAProxy instance on this machine: files, master process, sockets and checks."""
