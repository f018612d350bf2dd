"""What clients have posted: files in folders that all processes share, and what a process has read of them."""
