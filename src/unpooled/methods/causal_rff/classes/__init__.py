"""A latent confounder with a few classes, fitted by variational EM over the sites and Gibbs sampling."""
