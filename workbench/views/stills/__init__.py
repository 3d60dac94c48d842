"""Still pictures of a run as SVG text, for where no script runs."""
