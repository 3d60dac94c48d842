"""The judge: which runs to ask for, and what they say."""
