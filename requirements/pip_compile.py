"""pip-compile, with the hashes that the index states for its files.

By itself pip-compile downloads every file whose hash is not in PyPI's JSON API under the same URL, for every platform:
for the GPU lock, tens of gigabytes.
"""

from pip._internal.models.link import Link
from pip._internal.utils.hashes import FAVORITE_HASH
from piptools.repositories.pypi import PyPIRepository
from piptools.scripts.compile import cli

download_and_hash = PyPIRepository._get_file_hash


def stated_hash(repository: PyPIRepository, link: Link) -> str:
    """Return the hash of a file as a lock has it, ``sha256:...``."""
    if link.hash_name == FAVORITE_HASH:
        return f"{FAVORITE_HASH}:{link.hash}"
    return download_and_hash(repository, link)


PyPIRepository._get_file_hash = stated_hash

if __name__ == "__main__":
    cli()
