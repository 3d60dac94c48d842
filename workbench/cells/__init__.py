"""Cells that run on ranks: processes of the warm pool that stay, with what they have computed."""
