"""The paper's inference for FedCI: a variational bound with Wishart and Gaussian approximations."""
