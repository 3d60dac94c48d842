"""The interval of checkpoints: swept under random failures, against Young and Daly."""
