"""Files of an instance on disk: generations, the journal of runtime changes, and what a restart loads."""
