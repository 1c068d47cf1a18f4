"""HAProxy's configuration as a model, without I/O: text to model to plan."""
