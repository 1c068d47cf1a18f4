"""Gateway API decisions without I/O: attachment, intersections, precedence, references, conditions."""
