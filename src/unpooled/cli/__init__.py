"""The command line, one file per command. Slow imports are inside the commands so that --help is fast."""
