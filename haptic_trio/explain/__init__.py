"""Which template, fragment and object made a line, a backend or a route; and what an object made. Without I/O."""
