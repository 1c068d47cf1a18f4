"""Contents that templates fetch by HTTP: fetched safely, kept, refreshed, tried before they are accepted."""
