"""The speed-up by more ranks: swept, against the ideal and against what this machine can do."""
