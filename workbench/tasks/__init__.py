"""Tasks to train: one file each, with a class ``Task`` (model, dataset, loss, metrics)."""
