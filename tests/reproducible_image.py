"""Write an image so that equal contents are equal bytes: ``python -m tests.reproducible_image FILE EPOCH <SAVED``.

``SAVED`` is what ``docker save`` prints. Its files keep their contents, owners and modes; their times, and those of the
image, become EPOCH at the latest, in seconds. Layers stay layers. `docker load` reads the result.
"""

import hashlib
import io
import json
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

Document = dict[str, Any]
KEPT = ("architecture", "os", "variant", "config")
"""The fields of the configuration; the others tell of the machine that built it."""


def main(file: str, epoch: str) -> int:
    """Write the archive."""
    with tempfile.TemporaryFile() as saved:
        while block := sys.stdin.buffer.read(1 << 20):
            saved.write(block)
        saved.seek(0)
        with Path(file).open("wb") as target:
            write(saved, target, int(epoch))
    return 0


def write(saved: IO[bytes], target: IO[bytes], epoch: int) -> None:
    """Write the archive of an image that ``docker save`` has written."""
    with (
        tarfile.open(fileobj=saved) as source,
        tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as made,
    ):
        (image,) = json.loads(_read(source, "manifest.json"))
        config, digests = json.loads(_read(source, image["Config"])), list[str]()
        for name in image["Layers"]:
            with tempfile.TemporaryFile() as layer:
                digest = _layer(_open(source, name), layer, epoch)
                if digest not in digests:
                    _add(made, f"{digest}.tar", layer)
                digests.append(digest)
        document = json.dumps(_config(config, digests, epoch), sort_keys=True).encode()
        name = f"{hashlib.sha256(document).hexdigest()}.json"
        layers = [f"{digest}.tar" for digest in digests]
        manifest = [{"Config": name, "RepoTags": image["RepoTags"], "Layers": layers}]
        _add(made, name, io.BytesIO(document))
        _add(made, "manifest.json", io.BytesIO(json.dumps(manifest, sort_keys=True).encode()))


def _layer(source: IO[bytes], target: IO[bytes], epoch: int) -> str:
    """Write a layer with its files in the order of their names; return its digest."""
    with tarfile.open(fileobj=source) as old, tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as new:
        # A hard link comes after its file: links are last among files, in the order of the layer.
        files = sorted(old.getmembers(), key=lambda member: (member.islnk(), "" if member.islnk() else member.name))
        for member in files:
            member.mtime = min(int(member.mtime), epoch)
            member.pax_headers = {name: text for name, text in member.pax_headers.items() if name.startswith("SCHILY")}
            new.addfile(member, old.extractfile(member) if member.isreg() else None)
    target.seek(0)
    return hashlib.file_digest(target, "sha256").hexdigest()  # pyright: ignore[reportArgumentType] - a temporary file


def _config(config: Mapping[str, Any], digests: Sequence[str], epoch: int) -> Document:
    time = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    settings: Document = {name: config[name] for name in KEPT if name in config}
    # The name of the container that built a layer, and the image that it began with.
    settings["config"] = {
        name: value for name, value in settings["config"].items() if name not in ("Hostname", "Image")
    }
    history = [{**each, "created": time} for each in config["history"]]
    diff_ids = [f"sha256:{digest}" for digest in digests]
    return {**settings, "created": time, "history": history, "rootfs": {"type": "layers", "diff_ids": diff_ids}}


def _open(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    member = archive.getmember(name)
    # An engine writes a layer that an image has twice as a link to the first.
    found = archive.extractfile(member)
    if found is None:
        raise ValueError(f"expected {name} to be a file in what docker save wrote")
    return found


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    return _open(archive, name).read()


def _add(archive: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size = file.seek(0, io.SEEK_END)
    file.seek(0)
    archive.addfile(member, file)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
