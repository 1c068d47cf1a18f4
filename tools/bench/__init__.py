"""The benchmark: how long a change takes to reach traffic."""
