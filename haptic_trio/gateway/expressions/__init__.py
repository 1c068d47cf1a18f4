"""Regular expressions of routes: syntax, worst-case cost, and the limits that reject them."""
