"""What runs in a process of its own: a worker, a version of saved ops, checks, jobs; and what starts these."""
