"""Discovery, schedule, deployment and drift: from a valid configuration to every endpoint."""
