"""The messages of exceptions for clients."""

import pytest

from app.runtime.messages import message_of, without_paths


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('File "/home/me/x.py", line 3, in f', "…, in f"),
        ('File "<string>", line 3', "…"),
        ("No such file: '/home/me/x.npy'", "No such file: '…'"),
        ("see https://example.org/a/b_c, in m/s", "see https://example.org/a/b_c, in m/s"),
    ],
)
def test_a_message_has_no_paths_but_keeps_urls(text: str, expected: str):
    assert without_paths(text) == expected
    assert message_of(ValueError(f"lost: {text}")) == f"lost: {expected}"


def test_what_xla_cannot_compile_is_the_message() -> None:
    """TensorFlow puts a stack without names after it."""
    reason = "XLA compilation requires a fixed tensor list size."
    text = (
        f"Graph execution error:\n\n{reason} Set the max number of elements.\n\n"
        "Stack trace for op definition: \ndummy_file_name:10:dummy_function_name\n\n\t [[{{node gradients/mul}}]]\n"
        "\ttf2xla conversion failed while converting __inference_f_1[]. Run with TF_DUMP_GRAPH_PREFIX=/dir and "
        "--vmodule=xla_compiler=2 to obtain a dump of the compiled functions.\n\t [[PartitionedCall]]"
    )
    assert message_of(ValueError(text)) == f"{reason} Set the max number of elements."
