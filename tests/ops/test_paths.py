"""The paths of this machine are found in a text, and nothing else is."""

import pytest

from pullback.ops._paths import replace_paths, without_folders

# A text, and the same text without the paths of this machine.
CUT = {
    "/usr/lib/python3/numpy.py": "…",
    "No such file: /home/me/data/table.npy": "No such file: …",
    "[Errno 2] No such file or directory: '/home/me/table.npy'": "[Errno 2] No such file or directory: '…'",
    "'/home/my user/a table.npy' is missing": "'…' is missing",
    '"/home/my user/folder" is missing': '"…" is missing',
    "PosixPath('/tmp/x/y')": "PosixPath('…')",
    "see /tmp/x/y.": "see ….",
    "see /tmp/x/y, /var/log/z; and (/etc/passwd)": "see …, …; and (…)",
    "x=/home/me/y": "x=…",
    "/usr/lib/a.so:/usr/lib/b.so": "…:…",
    "gcc -I/usr/include/python3 -L/usr/lib -lm": "gcc -I… -L… -lm",
    "/home/me/ops/square.py:12: bad": "…: bad",
    "/home/me/ops/square.py:12:7: bad": "…: bad",
    "tensorflow/core/kernels/matmul_op.cc:123": "…",
    "external/local_xla/xla/stream.h:9] x": "…] x",
    "lib/libcudart.so.12 is missing": "… is missing",
    "~/.cache/x and ~me/y": "… and …",
    "./x/y and ../z": "… and …",
    "file:///home/me/x and file:/tmp/y": "… and …",
    "/secret/place.py": "…",
    "/data/weights.npy was not found": "… was not found",
    "/home//me/x": "…",
    "/home/é/ü": "…",
    "<built-in function f> at </home/me/x>": "<built-in function f> at <…>",
    "http://x.org/a and /home/me/b": "http://x.org/a and …",
    "https://x.org/home/me/x.py /home/me/x.py": "https://x.org/home/me/x.py …",
}
KEPT = (
    "https://www.tensorflow.org/api_docs/python/tf/math/greater_than",
    "see https://www.tensorflow.org/api_docs/python/tf/math/greater_than.",
    "(http://127.0.0.1:8000/v1/ops/square.py?x=/home/me#y)",
    "https://user:password@example.org/home/me/x.py",
    "<https://example.org/home/x> or 'https://example.org/etc/y'",
    "s3://bucket/home/x.npy, gs://bucket/y.py and http+unix://%2Frun%2Fpullback.sock",
    "expected a speed in m/s, got km/h",
    "kg/m/s and d/dx and dy/dx/dt",
    "on 2024/01/02 or 01/02/2024, at 3/4 of 1/2/3",
    "either a/b or and/or, I/O, n/a, TCP/IP",
    "application/json; text/plain",
    "x / y / z, x /y, (a+b)/(c+d)/e, x[0]/tmp/2",
    "2 /3/4",
    "GET /v1/ops/square and POST /v2/models/square/infer",
    "expected op/shape, got model/dense/MatMul",
    "model/layer.1/kernel",
    r"C:\Folder\me\x.py and C:/Folder/me/x.py",
    r"\\server\share\x.py",
    "//cdn.example.org/x",
    "/job:localhost/replica:0/task:0/device:CPU:0",
    "/",
    "/ // /// ...",
    "a//b",
    "'/' and '//'",
    "'a'/'b'/'c'",
    "",
)


@pytest.mark.parametrize(("text", "expected"), CUT.items())
def test_a_path_of_this_machine_is_cut(text: str, expected: str):
    assert replace_paths(text, lambda path: "…") == expected


@pytest.mark.parametrize("text", KEPT)
def test_other_texts_are_kept(text: str):
    assert replace_paths(text, lambda path: "…") == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot open /home/me/data/table.npy", "cannot open table.npy"),
        ("in /home/me/ops/", "in ops"),
        ("build/relu.so is missing; see ops/relu.py", "build/relu.so is missing; see ops/relu.py"),
        (
            "use tf.math.greater_than, see https://example.org/a/b/c",
            "use tf.math.greater_than, see https://example.org/a/b/c",
        ),
    ],
)
def test_a_path_may_keep_the_name_of_its_file(text: str, expected: str):
    assert replace_paths(text, without_folders) == expected


@pytest.mark.parametrize(
    "piece",
    [
        *("/", "a", "/a"),
        *(
            pytest.param(piece, marks=pytest.mark.slow)
            for piece in ("a/", "/a.", ".", "'/a", "://", "a:/", "~/", "-I/", "/a:1", 'File "')
        ),
    ],
)
def test_long_texts_take_linear_time(piece: str):
    """Quadratic time would take hours."""
    text = piece * 1_000_000
    assert len(replace_paths(text, lambda path: "…")) <= len(text)
