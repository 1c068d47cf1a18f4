"""The bench: how long a change of the cluster takes to reach traffic, with a real controller, HAProxy and client."""
