"""The paper's Gaussian latent confounder, fitted by its Algorithm 1."""
