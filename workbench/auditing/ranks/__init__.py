"""Inside the ranks of an audited script: forks, and a probe that watches one update."""
