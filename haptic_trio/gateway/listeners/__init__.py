"""Gateways and their listeners: ports, addresses, certificates and infrastructure."""
