"""What the facts add up to for those who watch from outside: metrics, and traces."""
