"""Options and input sources that several subcommands share."""
