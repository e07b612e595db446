"""Model parts shared by the methods: outcome families, average and individual effects."""
