"""The estimation methods, one folder per method, with the same file names in each."""
