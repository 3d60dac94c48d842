"""Which sample goes to which rank in which minibatch: ``wb.partition``, and what runs tell."""
