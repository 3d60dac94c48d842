"""Pages: the feed of a run, what pages may ask of it, and Plotly figures."""
