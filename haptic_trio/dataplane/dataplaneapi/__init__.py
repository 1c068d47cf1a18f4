"""HAProxy instances that are reached through the HAProxy Data Plane API."""
