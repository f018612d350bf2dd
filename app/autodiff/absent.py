"""Why a derivative is missing, or the uncertainty of a number."""

from enum import StrEnum


class Absent(StrEnum):
    """The reason why a derivative is missing, or an uncertainty."""

    NOT_DIFFERENTIABLE = "not_differentiable"
    DISCONNECTED = "disconnected"
    NOT_SENT = "not_sent"
    WHOLE = "whole_number"
    PYTHON = "python_function"
    LOOP = "loop_ends_by_value"


OF_UNCERTAINTIES = (Absent.WHOLE, Absent.PYTHON, Absent.LOOP)
