"""The paper's latent confounder, a point in space, by its Algorithm 1."""
