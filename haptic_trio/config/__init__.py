"""The controller's configuration: its shape, how it is decoded, and how it is checked."""
