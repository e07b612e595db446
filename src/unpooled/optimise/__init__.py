"""How the coordinator moves θ: procedures that know stages, but no method."""
