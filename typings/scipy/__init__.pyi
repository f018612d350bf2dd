"""A stub of the part of SciPy 1.17 that this project uses; SciPy ships none. Written by hand."""

from scipy import linalg as linalg
from scipy import sparse as sparse
from scipy import special as special
