"""What all parties agree on: messages, their bytes, stages, and what an engine must do."""
