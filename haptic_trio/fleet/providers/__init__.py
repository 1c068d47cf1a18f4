"""Providers of HAProxy instances: processes of this machine, and pods."""
