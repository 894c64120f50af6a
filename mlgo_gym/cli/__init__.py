"""The command line: ``mlgo-gym`` and its subcommands."""
