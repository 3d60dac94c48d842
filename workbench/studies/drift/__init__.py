"""A bug or rounding: training over ranks held against sequential training, beside known bugs."""
