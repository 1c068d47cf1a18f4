"""The fleet of HAProxy instances that the process owns or observes."""
