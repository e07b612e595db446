"""One module per kind of figure. Each function draws on `ax`, or on a new figure, and returns the Axes."""
