"""What is asked beside any method's fit, and in the same rounds: balance, overlap, and simpler estimates."""
