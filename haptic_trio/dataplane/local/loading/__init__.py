"""Steps of a load: a check of the changes before it, and the worker that it starts."""
