"""NVIDIA FLARE: the same study across machines. The package `nvflare` is imported only in this folder."""
