"""What an algorithm will take on this machine and these links, and so which one "auto" takes."""
