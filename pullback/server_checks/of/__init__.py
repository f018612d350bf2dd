"""Functions of NumPy, PyTorch, JAX and TensorFlow, called in this process: a module for each kind."""
