"""Admission webhook: reviews objects by a dry run of the pipeline before the API server stores them."""
