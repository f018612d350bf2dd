"""What the checks of a server can show with the evaluations that they had, and what they cannot."""

from pullback.counted import counted
from pullback.gradcheck.plan import Plan


def scope(plan: Plan, evaluations: int, points: int) -> str:
    """Return it in a few sentences."""
    spent = f"{counted(evaluations, 'evaluation')} at {counted(points, 'point')}."
    if not plan.is_whole:
        shown = (
            "One output, one input and one direction of this input were chosen at random. An error of the gradient "
            "there was found if it is larger than the error bar; what others have is not known."
        )
    elif not plan.steps:
        shown = (
            "Each input was moved in one random direction. An error of the gradient in this direction was found if it "
            "is larger than the error bar; which number is wrong is not known."
        )
    elif plan.coordinates:
        shown = (
            f"Each input was moved in {plan.directions} random directions, in which all its numbers change, and up to "
            f"{plan.coordinates} of its numbers were moved alone. An error of the gradient was found if it is larger "
            "than the error bar in one of these."
        )
    else:
        shown = (
            "Each input was moved in a random direction, in which all its numbers change. An error of the gradient was "
            "found if it is larger than the error bar there; which number is wrong is not known."
        )
    if plan.measures_noise:
        noise = "The noise of values and gradients was measured."
    else:
        noise = "Too few to measure noise: values and gradients count as off by 1e-6, the tolerance of a solver."
    rest = (
        ""
        if plan.has_properties
        else (" Subsets, linearity, adjoint, symmetry, determinism and the second order were not checked.")
    )
    if not plan.looks_nearby:
        rest += " Whether answers are those of other points was not checked."
    return f"{spent} {shown} {noise}{rest} What happens at other points, and at kinks, is not shown."
