"""Study diagnostics that run in the same rounds as any method's fit: balance, overlap, simpler estimates."""
