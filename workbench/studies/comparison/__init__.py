"""``wb.compare``: several experiments, each over several seeds, on common axes."""
