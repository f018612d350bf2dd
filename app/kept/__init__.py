"""What clients have posted: files in folders that all processes share, and a cache in each process."""
