"""Files of state directories: reading them without following links and without waiting, and writing them durably."""
