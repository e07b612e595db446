"""What methods share: outcome families, average and individual effects, networks."""
