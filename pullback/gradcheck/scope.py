"""What the checks of a server can show with the evaluations that they had, and what they cannot."""

from pullback.counted import counted
from pullback.gradcheck.plan import Plan


def scope(plan: Plan, evaluations: int, points: int) -> str:
    """Return it in a few sentences."""
    spent = f"{counted(evaluations, 'evaluation')} at {counted(points, 'point')}."
    if not plan.is_whole:
        shown = (
            "They show an error of the gradient of one output in one input, both chosen at random, along one random "
            "direction, if it is larger than the error bar; not what other inputs, outputs and directions have."
        )
    elif not plan.steps:
        shown = (
            "They show an error along one random direction of each input, if it is larger than the error bar; they do "
            "not tell which number is wrong."
        )
    elif plan.coordinates:
        shown = (
            f"They show an error in any number that is larger than the error bar along one of {plan.directions} random "
            f"directions of each input, and of up to {plan.coordinates} numbers each by itself."
        )
    else:
        shown = (
            "They show an error in any number that is larger than the error bar along a random direction of each "
            "input; they do not tell which number is wrong."
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
