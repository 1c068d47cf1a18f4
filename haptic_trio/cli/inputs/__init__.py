"""Options and sources that several commands share."""
