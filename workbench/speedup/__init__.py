"""How much faster more ranks are: swept, against the ideal and against what this machine can do."""
