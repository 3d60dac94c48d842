"""What is trained: one file a task, each with a class ``Task`` (model, dataset, loss, metrics)."""
