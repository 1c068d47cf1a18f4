"""Plans: the runtime operations, or the reload, that turn one configuration into another."""
