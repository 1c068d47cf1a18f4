"""The fleet: how many HAProxy instances there are, how healthy, how old, and how they leave."""
