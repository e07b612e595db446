"""The paper's own inference: a variational bound with Wishart and Gaussian approximations."""
