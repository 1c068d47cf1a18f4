"""Routes of the Gateway API: attachment, matches, backends and routing entries."""
