"""The methods, one folder each, with the same file names."""
