"""Jinja2 with recorded fragments, typed emitters and a time limit."""
