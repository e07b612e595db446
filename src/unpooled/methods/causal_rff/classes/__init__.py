"""A latent confounder of a few classes: variational EM over the sites, then Gibbs rounds."""
