"""``python -m app.runtime.doctor``: a report on the libraries for TensorFlow, and how to install missing ones.

If a library is missing, TensorFlow itself only logs a line and then computes on the CPU.
"""

import ctypes
import logging
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Literal

import tensorflow as tf
from pydantic import BaseModel, ConfigDict, Field

from app.errors import clip
from app.runtime.devices import BUILT_WITH_CUDA, TENSORFLOW_VERSION, gpus
from app.settings import Settings
from ops import Registry, discover, left_out, native_libraries

DRIVER = "libcuda.so.1"
# The libraries that TensorFlow loads at run time, by soname, and their sources.
LIBRARIES: Mapping[str, str] = {
    DRIVER: "the NVIDIA driver on the host; in a container, run it with --gpus all (NVIDIA container toolkit)",
    "libcudart.so.12": "nvidia-cuda-runtime-cu12",
    "libcublas.so.12": "nvidia-cublas-cu12",
    "libcublasLt.so.12": "nvidia-cublas-cu12",
    "libcufft.so.11": "nvidia-cufft-cu12",
    "libcurand.so.10": "nvidia-curand-cu12",
    "libcusolver.so.11": "nvidia-cusolver-cu12",
    "libcusparse.so.12": "nvidia-cusparse-cu12",
    "libcudnn.so.9": "nvidia-cudnn-cu12",
    "libnccl.so.2": "nvidia-nccl-cu12",
    "libcupti.so.12": "nvidia-cuda-cupti-cu12",
    "libnvJitLink.so.12": "nvidia-nvjitlink-cu12",
}
# The files that XLA and kernels compiled at run time need, both from one package.
COMPILER, COMPILER_FILES = "nvidia-cuda-nvcc-cu12", ("bin/ptxas", "nvvm/libdevice/libdevice.10.bc")

Status = Literal["ok", "missing", "off"]
# The fewest columns for the text of a result beside its name.
LEAST_TEXT = 30
MARKS: Mapping[Status, str] = {"ok": "ok", "missing": "MISSING", "off": "-"}


class Part(BaseModel):
    """The result of one check."""

    # In the documentation, a field with a default is one that the response may lack.
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    name: str
    status: Status = Field(description="`off`: absent, and not needed.")
    found: str
    cure: str | None = Field(default=None, description="How to fix it.")


def examination(settings: Settings, registry: Registry) -> list[Part]:
    """Return the results of all checks."""
    memory = f"at most {settings.gpu_memory_mb} MiB of each GPU" if settings.gpu_memory_mb else "allocated as needed"
    return [
        Part(name="tensorflow", status="ok", found=TENSORFLOW_VERSION),
        *_cuda(),
        Part(name="gpu memory", status="ok" if gpus() else "off", found=memory),
        Part(name="xla", status="ok", found="compiles for the CPU" + (" and the GPU" if gpus() else "")),
        Part(name="ops", status="ok", found=f"{len(registry.ops)} served"),
        _native(),
        *(Part(name=f"op {op.name}", status="missing", found=op.reason) for op in registry.unavailable),
    ]


def _native() -> Part:
    """Return the libraries of C++ ops; those of the service itself are optional where a wheel has installed it."""
    loaded, absent = ", ".join(native_libraries()), ", ".join(left_out())
    cure = f"pullback native --service builds {absent}, with g++" if absent else None
    return Part(name="native ops", status="ok" if loaded or not absent else "off", found=loaded or "none", cure=cure)


def why_no_gpu() -> str:
    """Return the reasons why there is no GPU, and how to fix them."""
    failed = [part for part in _cuda() if part.cure]
    return "; ".join(f"{part.name}: {part.found}: {part.cure}" for part in failed) or "TensorFlow finds no GPU"


def _cuda() -> Iterator[Part]:
    if not BUILT_WITH_CUDA:
        cure = "for a GPU, install requirements/gpu.txt instead of cpu.txt, or use the gpu image"
        yield Part(name="cuda", status="off", found="this TensorFlow is built for the CPU only", cure=cure)
        return
    built = tf.sysconfig.get_build_info()
    versions = f"CUDA {built.get('cuda_version', '?')} and cuDNN {built.get('cudnn_version', '?')}"
    yield Part(name="cuda", status="ok", found=f"this TensorFlow is built with {versions}")
    yield from (library(soname, source) for soname, source in LIBRARIES.items())
    yield from map(compiler_file, COMPILER_FILES)
    names = [str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)) for gpu in gpus()]
    if names:
        yield Part(name="gpus", status="ok", found=", ".join(f"gpu:{i} {name}" for i, name in enumerate(names)))
    else:
        cure = "fix what is missing above; nvidia-smi lists the GPUs that the driver sees"
        yield Part(name="gpus", status="missing", found="TensorFlow finds no GPU", cure=cure)


def library(soname: str, source: str) -> Part:
    """Load a shared library as TensorFlow does: from the loader's paths, or from NVIDIA's wheels."""
    in_wheels = [str(folder / "lib" / soname) for folder in _wheels() if (folder / "lib" / soname).exists()]
    found = "not found"
    for path in (soname, *in_wheels):
        try:
            ctypes.CDLL(path)
        except OSError as error:
            if path != soname or not in_wheels:
                found = clip(str(error), 200)
        else:
            return Part(name=soname, status="ok", found="found by the loader" if path == soname else path)
    return Part(name=soname, status="missing", found=found, cure=f"install {source}")


def compiler_file(path: str) -> Part:
    """Look for a file of CUDA's compiler in NVIDIA's wheels; for a program, also on the PATH."""
    name = Path(path).name
    installed = [str(folder / path) for folder in _wheels() if (folder / path).exists()]
    found = next(iter(installed), shutil.which(name))
    if found and (not path.startswith("bin/") or os.access(found, os.X_OK)):
        return Part(name=name, status="ok", found=found)
    return Part(name=name, status="missing", found="not found", cure=f"install {COMPILER}")


def _wheels() -> Iterator[Path]:
    """Yield the folders that NVIDIA's wheels install."""
    for packages in dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))):
        yield from sorted(Path(packages).glob("nvidia/*"))


def lines(parts: Sequence[Part], columns: int) -> Iterator[str]:
    """Yield the results as lines of at most ``columns``; in a narrow terminal, as a block for each."""
    name_width = max(len(part.name) for part in parts)
    indent = " " * (name_width + 11)
    for part in parts:
        head, further = f"{part.name:{name_width}}  {MARKS[part.status]:7}  ", indent
        if columns < len(indent) + LEAST_TEXT:
            yield f"{part.name}: {MARKS[part.status]}"
            head = further = "  "
        for text in filter(None, (part.found, part.cure)):
            yield from wrap(text, columns, initial_indent=head, subsequent_indent=further, break_on_hyphens=False)
            head = further


def main() -> int:
    """Print the results; return 1 if something is missing."""
    # The report has what the log would say.
    logging.getLogger("pullback").setLevel(logging.CRITICAL)
    settings = Settings()
    parts = examination(settings, discover(settings.ops_path))
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for line in lines(parts, columns):
        print(line)
    return int(any(part.status == "missing" for part in parts))


if __name__ == "__main__":
    sys.exit(main())
