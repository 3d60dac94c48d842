"""``wb.crossover`` and ``wb.why``: which algorithm is fastest at which size."""
