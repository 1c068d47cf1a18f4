"""What one request costs HAProxy."""
