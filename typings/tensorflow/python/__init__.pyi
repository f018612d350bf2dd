"""TensorFlow's private side: only what the project cannot do without, each use with its reason beside the import."""
