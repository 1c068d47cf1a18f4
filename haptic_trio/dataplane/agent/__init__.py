"""The agent's protocol: server beside an HAProxy, and its client in the controller."""
