"""How ranks come to exist."""
