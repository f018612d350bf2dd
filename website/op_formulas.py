"""The formulas of the ops in TeX, for the site: the value, and the gradient as the pullback of a cotangent."""

from typing import NamedTuple


class Formulas(NamedTuple):
    """The value of an op and its gradient."""

    value: str
    gradient: str


FORMULAS = {
    "square": Formulas(r"y = x^2", r"dx = 2x\,dy"),
    "log1pexp": Formulas(
        r"y = \max(x, 0) + \log(1 + e^{-|x|})", r"dx = \sigma(x)\,dy, \quad \sigma(x) = \frac{1}{1 + e^{-x}}"
    ),
    "log1pexp2": Formulas(
        r"y = \log(1 + e^x)", r"dx = \left(1 - \frac{1}{1 + e^x}\right) dy, \quad \frac{d^2y}{dx^2} := 1 - e^x"
    ),
    "sign": Formulas(
        r"y = \operatorname{sign}(x)", r"dx = \begin{cases} dy & |x| \le 1 \\ 0 & \text{elsewhere} \end{cases}"
    ),
    "round_ste": Formulas(r"y = \operatorname{round}(x)", r"dx = dy"),
    "surrogate": Formulas(r"y = f(x)", r"dx = g'(x)\,dy"),
    "gradient_reversal": Formulas(r"y = x", r"dx = -\lambda\,dy"),
    "scale_gradient": Formulas(r"y = x", r"dx = s\,dy"),
    "clip_gradient": Formulas(
        r"y = x", r"dx = \min(\max(dy, l), h) \quad \text{or} \quad dx = dy\,\min\left(1, \frac{L}{|dy|}\right)"
    ),
    "safe_norm": Formulas(
        r"y = \sqrt{\sum_i x_i^2}", r"dx = \frac{x}{y}\,dy, \quad \text{and } 0 \text{ where } y = 0"
    ),
    "softmax_cross_entropy": Formulas(
        r"y = \log \sum_j e^{x_j} - x_k, \quad k \text{ the label}",
        r"dx = (p - e_k)\,dy, \quad p_i = \frac{e^{x_i}}{\sum_j e^{x_j}}",
    ),
    "self_adjoint_eig": Formulas(
        r"\frac{A + A^T}{2} = V \operatorname{diag}(w)\,V^T",
        r"dA = V \left(\operatorname{diag}(dw) + F \circ \frac{V^T dV - dV^T V}{2}\right) V^T,"
        r"\quad F_{ij} = \frac{w_j - w_i}{(w_j - w_i)^2 + \beta^2}",
    ),
    "zero_out": Formulas(r"y = x_0\,e_0", r"dx = dy_0\,e_0"),
    "zero_out_indexed": Formulas(r"y = x_0\,e_0, \quad \text{index} = 0", r"dx = dy_0\,e_0"),
    "relu": Formulas(r"y = \max(x, 0)", r"dx = \begin{cases} dy & x > 0 \\ 0 & \text{elsewhere} \end{cases}"),
    "roi_pool": Formulas(
        r"y_{ij} = \max_{c \in B_{ij}} x_c, \quad B_{ij} \text{ a bin of the region}",
        r"dx_c = \sum_{ij:\, c = a_{ij}} dy_{ij}, \quad a_{ij} \text{ the cell of the maximum}",
    ),
    "conv_eig": Formulas(
        r"\frac{1}{n} Z^T Z = V \operatorname{diag}(w)\,V^T, \quad Z = x * f \text{ less its mean}",
        r"dZ = \frac{2}{n} Z\,V \operatorname{diag}(dw)\,V^T, \quad \text{pulled back through the convolution}",
    ),
    "add": Formulas(r"y = a + b", r"da = dy, \quad db = dy"),
    "subtract": Formulas(r"y = a - b", r"da = dy, \quad db = -dy"),
    "multiply": Formulas(r"y = a\,b", r"da = b\,dy, \quad db = a\,dy"),
    "divide": Formulas(r"y = \frac{a}{b}", r"da = \frac{dy}{b}, \quad db = -\frac{a}{b^2}\,dy"),
    "matmul": Formulas(r"Y = A B", r"dA = dY\,B^T, \quad dB = A^T\,dY"),
    "matvec": Formulas(r"y = A x", r"dA = dy\,x^T, \quad dx = A^T\,dy"),
    "sum": Formulas(r"y = \sum_i x_i", r"dx_i = dy"),
    "mean": Formulas(r"y = \frac{1}{n} \sum_i x_i", r"dx_i = \frac{dy}{n}"),
    "concat": Formulas(r"y = (a, b)", r"(da, db) = dy"),
    "slice": Formulas(
        r"y_i = x_{b+i}, \quad 0 \le i < s",
        r"dx_{b+i} = dy_i, \quad \text{and } 0 \text{ for the others}",
    ),
    "reshape": Formulas(r"y_{k} = x_{k}, \quad \text{in row-major order}", r"dx_{k} = dy_{k}"),
    "flatten": Formulas(r"y_{k} = x_{k}, \quad \text{in row-major order}", r"dx_{k} = dy_{k}"),
    "transpose": Formulas(r"Y = X^T", r"dX = dY^T"),
    "cast_float64": Formulas(r"y = x", r"dx = dy"),
}
