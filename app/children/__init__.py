"""Code that runs in separate processes (a worker, a version of saved ops, checks, jobs), and what starts these."""
