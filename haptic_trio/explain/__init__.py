"""The template, fragment and object behind a line, backend or route, and the output of an object. Without I/O."""
