"""Archives of images: equal contents are equal bytes, whatever their times, order and builder."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any

import pytest

from tests.reproducible_image import write

EPOCH = 1_700_000_000
File = tuple[str, dict[str, Any]]
FILES: Mapping[str, File] = {
    "app": ("", {"type": tarfile.DIRTYPE, "mode": 0o755}),
    "app/main.py": ("print(1)\n", {"mode": 0o644}),
    "app/run": ("#!/bin/sh\n", {"mode": 0o755, "uid": 10001}),
    "app/link": ("", {"type": tarfile.SYMTYPE, "linkname": "main.py"}),
    "app/hard": ("", {"type": tarfile.LNKTYPE, "linkname": "app/run"}),
    ".wh.gone": ("", {}),
}


def layer_of(files: Mapping[str, File], time: float) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as layer:
        for name, (text, fields) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(text), time
            for field, value in fields.items():
                setattr(member, field, value)
            layer.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()


def saved(
    files: Mapping[str, File] = FILES, time: float = EPOCH + 0.5, name: str = "a", user: str = "10001"
) -> io.BytesIO:
    """Return what ``docker save`` writes of an image with this layer twice."""
    layer = layer_of(files, time)
    config = {
        **{"architecture": "amd64", "os": "linux", "created": f"{time}", "container": name},
        "config": {"User": user, "Hostname": name, "Image": name},
        "history": [{"created": f"{time}", "created_by": "COPY app app"}, {"created": f"{time}", "empty_layer": True}],
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"] * 2},
    }
    manifest = [
        {"Config": f"{name}.json", "RepoTags": ["pullback:1"], "Layers": [f"{name}/layer.tar", "other/layer.tar"]}
    ]
    parts = {f"{name}.json": json.dumps(config), "manifest.json": json.dumps(manifest), f"{name}/layer.tar": layer}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for path, part in parts.items():
            data = part.encode() if isinstance(part, str) else part
            member = tarfile.TarInfo(path)
            member.size, member.mtime = len(data), int(time)
            archive.addfile(member, io.BytesIO(data))
        again = tarfile.TarInfo("other/layer.tar")
        again.type, again.linkname = tarfile.SYMTYPE, f"../{name}/layer.tar"
        archive.addfile(again)
    made.seek(0)
    return made


def written(source: io.BytesIO) -> bytes:
    target = io.BytesIO()
    write(source, target, EPOCH)
    return target.getvalue()


def test_equal_contents_are_equal_bytes() -> None:
    links = {name: file for name, file in FILES.items() if "type" in file[1]}
    other = {**dict(reversed([each for each in FILES.items() if each[0] not in links])), **links}
    assert written(saved()) == written(saved(other, EPOCH + 99.25, "b"))


@pytest.mark.parametrize(
    "changed",
    [
        saved({**FILES, "app/main.py": ("print(2)\n", {"mode": 0o644})}),
        saved({**FILES, "app/main.py": ("print(1)\n", {"mode": 0o600})}),
        saved({**FILES, "app/run": ("#!/bin/sh\n", {"mode": 0o755, "uid": 0})}),
        saved({**FILES, "app/link": ("", {"type": tarfile.SYMTYPE, "linkname": "run"})}),
        saved({**FILES, "app/more": ("", {})}),
        saved(time=EPOCH - 1),
        saved(user="root"),
    ],
    ids=["bytes", "mode", "owner", "link", "file", "earlier", "config"],
)
def test_other_contents_are_other_bytes(changed: io.BytesIO) -> None:
    assert written(saved()) != written(changed)


def test_the_image_is_the_same_and_names_its_parts_by_their_digests() -> None:
    with tarfile.open(fileobj=io.BytesIO(written(saved()))) as archive:
        parts = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    (image,) = json.loads(parts["manifest.json"])
    config = json.loads(parts[image["Config"]])
    assert image["Config"] == f"{hashlib.sha256(parts[image['Config']]).hexdigest()}.json"
    assert image["RepoTags"] == ["pullback:1"]
    digests = [hashlib.sha256(parts[name]).hexdigest() for name in image["Layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}" for digest in digests]
    assert config["config"] == {"User": "10001"}
    assert [each["created"] for each in config["history"]] == ["2023-11-14T22:13:20Z"] * 2 == [config["created"]] * 2
    with tarfile.open(fileobj=io.BytesIO(parts[image["Layers"][0]])) as layer:
        found = {member.name: (member.mode, member.uid, member.linkname, int(member.mtime)) for member in layer}
        assert layer.extractfile("app/hard").read() == b"#!/bin/sh\n"  # type: ignore[union-attr]
    assert set(found) == set(FILES)
    assert found["app/run"] == (0o755, 10001, "", EPOCH)
    assert found["app/link"][2] == "main.py"
