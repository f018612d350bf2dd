"""Wrong pages of every kind that an author may write: what the reason says, and the line that is to blame."""

from typing import NamedTuple

GOOD = '''"""y = k x."""
import numpy as np
from ops import (
    Array, Attrs, Claim, Derivative, Example, Formula, Input, Op, Output, Surrogate, Tensor, custom_gradient
)


class Scale(Attrs):
    k: float = 2.0
    way: bool = True


def forward(x, *, k, way):
    return k * x


def vjp(x, dy, *, k, way):
    return k * dy


def reference(x, *, k, way):
    return k * x


def claim(attrs):
    return Claim()


def validate(inputs, attrs):
    pass


def sample(rng, dtype, attrs):
    return {"x": rng.uniform(1, 2, 3)}


def singular(inputs, attrs):
    return False


def cost(dims):
    return 1


OP = Op(
    name="NAME",
    summary="k x",
    doc=__doc__,
    function=custom_gradient(forward, vjp),
    reference=reference,
    inputs=(Input("x", shape=("N",)),),
    outputs=(Output("y", shape=("N",)),),
    mechanism="custom_gradient",
    source="a test",
    examples=(Example("two", {"x": [1.0, 2.0]}, {"k": 3.0}),),
    attrs=Scale,
    claim=claim,
    validate=validate,
    sample=sample,
    singular=singular,
    cost=cost,
)
'''


class Wrong(NamedTuple):
    """A wrong page: words of the reason, and the text in the line that the reason names; "" if it names none."""

    source: str
    words: tuple[str, ...]
    line: str = ""


def instead(before: str, after: str, *words: str, line: str = "") -> Wrong:
    """Return a good page with one change, whose last line is to blame."""
    assert GOOD.count(before) == 1, before
    return Wrong(GOOD.replace(before, after), words, line or after.strip().splitlines()[0])


def starting_with(first: str, *words: str, line: str = "") -> Wrong:
    """Return a good page with a first line that is to blame."""
    return Wrong(f"{first}\n{GOOD}", words, line or first)


def using(first: str, line: str, *words: str, gradient: bool = False, blamed: str = "") -> Wrong:
    """Return a good page with a first line, and another line in its forward, or its gradient, that is to blame."""
    before, after = (
        ("dy, *, k, way):\n    ", "return k * dy") if gradient else ("forward(x, *, k, way):\n    ", "return k * x")
    )
    page = GOOD.replace(before + after, f"{before}{line}\n    {after}")
    return Wrong(f"import tensorflow as tf\n{first}\n{page}", ("the op", *words), blamed or line)


INPUT, OUTPUT, EXAMPLE = (
    'Input("x", shape=("N",))',
    'Output("y", shape=("N",))',
    'Example("two", {"x": [1.0, 2.0]}, {"k": 3.0})',
)
FIELD = "k: float = 2.0"
# What is wrong about the whole of an op is said of the line where it is made.
MADE = "OP = Op("

WRONG: dict[str, Wrong] = {
    # The file.
    "a syntax error": starting_with("def f(:", "SyntaxError"),
    "a null byte": Wrong(f"{GOOD}\0", ("null bytes",)),
    "bytes that are not UTF-8": Wrong(f"X = '\udce9'\n{GOOD}", ("SyntaxError", "utf-8")),
    "no op": Wrong("X = 1\n", ("no OP is defined: expected OP = Op(...)",)),
    "an op of another name": Wrong(GOOD.replace(MADE, "MINE = Op("), ("no OP is defined, but MINE", "named OP")),
    "not an op": Wrong("OP = 3\n", ("expected OP = Op(...), got int",)),
    "the class": Wrong("from ops import Op as OP\n", ("expected OP = Op(...), got type",)),
    "two ops": Wrong(GOOD + GOOD[GOOD.index(MADE) :], ("expected one OP in a file", "lines 45, 63")),
    # Its state.
    "a variable": using("W = tf.Variable(2.0)", "x = x * tf.cast(W, x.dtype)", "reads W (a variable)", "Parameter("),
    "a variable in the gradient": using(
        "W = tf.Variable(2.0)", "dy = dy * tf.cast(W, x.dtype)", "reads W (a variable)", gradient=True
    ),
    "a variable in a loop": using(
        "W = tf.Variable(2.0)", "x = tf.map_fn(lambda a: a * tf.cast(W, a.dtype), x)", "reads W (a variable)"
    ),
    "a variable in a function of TensorFlow": using(
        "W = tf.Variable(2.0); twice = tf.function(lambda x: x * tf.cast(W, x.dtype))", "x = twice(x)", "reads W"
    ),
    "a variable in a bare custom gradient": using(
        "W = tf.Variable(2.0); twice = tf.custom_gradient(lambda x: (x * tf.cast(W, x.dtype), lambda dy: dy))",
        "x = twice(x)",
        "reads W (a variable)",
        blamed="W = tf.Variable",
    ),
    "a variable that changes": using("W = tf.Variable(2.0)", "W.assign_add(1.0)", "changes W (a variable)"),
    "a step of an optimizer": using(
        "W = tf.Variable(2.0); sgd = tf.keras.optimizers.SGD(0.1); sgd.build([W])",
        "sgd.apply([tf.reduce_sum(tf.cast(x, tf.float32))], [W])",
        "changes",
    ),
    "a new variable": using("", "x = x * tf.cast(tf.Variable(3.0, name='fresh'), x.dtype)", "makes a variable, fresh"),
    "a new variable in eager mode": using("", "with tf.init_scope(): tf.Variable(3.0)", "makes a variable"),
    "a new layer": using(
        "", "x = tf.keras.layers.Dense(1)(x[:, None])[:, 0]", "makes a variable", "layer.build(shape)"
    ),
    "random numbers": using(
        "", "x = x + tf.random.normal(tf.shape(x), dtype=x.dtype)", "differ in each call", "stateless"
    ),
    "random numbers with a seed": using(
        "tf.random.set_seed(3)", "x = x + tf.random.normal(tf.shape(x), dtype=x.dtype, seed=1)", "differ in each call"
    ),
    "random numbers in a branch": using(
        "",
        "x = tf.cond(x[0] > 0, lambda: x + tf.random.uniform([], dtype=x.dtype), lambda: x)",
        "RandomUniform",
    ),
    "a dropout": using("", "x = tf.nn.dropout(x, 0.5)", "differ in each call"),
    "a random generator": using(
        "G = tf.random.Generator.from_seed(1)", "x = x + G.normal([], dtype=x.dtype)", "changes G._state_var"
    ),
    # The import.
    "sys.exit": starting_with("import sys; sys.exit(7)", "SystemExit: 7", "it ends the program", "__main__"),
    "a script with arguments": starting_with(
        "import argparse; argparse.ArgumentParser().parse_args(['--nope'])", "SystemExit: 2", "__main__"
    ),
    "quit": starting_with("quit()", "SystemExit"),
    "KeyboardInterrupt": starting_with("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "GeneratorExit": starting_with("raise GeneratorExit", "GeneratorExit"),
    "BaseException": starting_with("raise BaseException('no')", "BaseException: no"),
    "an exception without a text": starting_with(
        "raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})", "Mute"
    ),
    "an exception with half a letter": starting_with(r"raise ValueError('\ud800')", "ValueError: ?"),
    "an exception of a million letters": starting_with("raise ValueError('a' * 10**6)", "ValueError: aaa", "…"),
    "an exception with terminal codes": starting_with(r"raise ValueError('\x1b[1mred\x1b[0m')", "ValueError: red;"),
    "a missing name": starting_with("from ops import costum_gradient", "ImportError", "costum_gradient"),
    "a missing module": starting_with("import no_such_module", "ModuleNotFoundError", "no_such_module"),
    "recursion": starting_with("f = lambda: f(); f()", "RecursionError"),
    "input": starting_with("input()", "EOFError"),
    "standard input": starting_with("import sys; sys.stdin.read(); 1 / 0", "ZeroDivisionError"),
    "TensorFlow 1": starting_with(
        "import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()", "leave out disable_v2_behavior", line=MADE
    ),
    "a library that is not built": Wrong(
        f"from ops import load\nload(__file__)\n{GOOD}", ("NotBuilt", "is missing; run pullback native")
    ),
    # The fields of an input and an output.
    "a forgotten comma": instead(
        INPUT, 'Input("x", "float32")', "input 'x': dtypes", "expected a valid tuple", "('float32',)"
    ),
    "a list of dtypes": instead(INPUT, 'Input("x", ["float32"])', "input 'x': dtypes", "(..., ) in place of [...]"),
    "an unknown dtype": instead(INPUT, 'Input("x", ("float31",))', "input 'x'", "float32", "got 'float31'"),
    "a dtype of TensorFlow": instead(
        INPUT, 'Input("x", (__import__("tensorflow").float32,))', "dtypes[0]", "write 'float32'"
    ),
    "complex and real dtypes": instead(
        INPUT, 'Input("x", ("complex64", "float32"))', "complex dtypes alone, got float32"
    ),
    "strings": instead(INPUT, 'Input("x", ("string",), differentiable=False)', "declare integers, such as codes"),
    "any number of inputs": instead(INPUT, 'Input("*xs", shape=("N",))', "stack them on an axis of one", line=MADE),
    "no dtypes": instead(INPUT, 'Input("x", ())', "expected at least one dtype"),
    "a dtype twice": instead(OUTPUT, 'Output("y", ("float32", "float32"))', "output 'y'", "each once"),
    "a bool that is differentiable": instead(INPUT, 'Input("x", ("bool",))', "expected bool alone"),
    "other dtypes in the output": instead(OUTPUT, 'Output("y", ("float64", "float32"))', "with tf.cast", line=MADE),
    "a shape without a comma": instead(
        OUTPUT, 'Output("y", shape=("N"))', "output 'y': shape", "valid tuple", "('N',)"
    ),
    "a shape of one letter": instead(INPUT, 'Input("x", shape="N")', "input 'x': shape", "write ('N',), with a comma"),
    "a symbol in another case": instead(
        OUTPUT, 'Output("y", shape=("n",))', "output 'y'", "got 'n'", "write 'N'", line=MADE
    ),
    "a symbol that no input has": instead(
        OUTPUT, 'Output("y", shape=("M",))', "output 'y'", "got 'M'", "write 'N'", line=MADE
    ),
    "a symbol beside dots": Wrong(
        GOOD.replace(INPUT, 'Input("x", shape=("...", "N"))')
        .replace(OUTPUT, 'Output("y", shape=("...", "M"))')
        .replace(EXAMPLE, 'Example("two", {"x": [1.0, 2.0]})'),
        ("output 'y'", "got 'M'", "write 'N'"),
        MADE,
    ),
    "a negative size": instead(INPUT, 'Input("x", shape=(-1,))', "input 'x'", "expected a shape", "-1"),
    "a size that is no integer": instead(INPUT, 'Input("x", shape=(2.5,))', "shape[0]", "got 2.5"),
    "a formula as a size": instead(OUTPUT, 'Output("y", shape=("2 * N",))', "expected a shape of names", "'2 * N'"),
    "two dots": instead(INPUT, 'Input("x", shape=("...", "..."))', "at most once"),
    "nine dimensions": instead(INPUT, 'Input("x", shape=("...", *"ABCDEFGHI"))', "up to 8 sizes"),
    "an input with a number for a name": instead(INPUT, "Input(1)", "name", "expected a valid string"),
    "an input with a capital": instead(INPUT, 'Input("X")', "names like", "'X'", line=MADE),
    "an infinite domain": instead(INPUT, 'Input("x", domain=(0, float("inf")))', "expected a finite domain"),
    "an empty domain": instead(INPUT, 'Input("x", domain=(1.0, 0.0))', "low < high"),
    "a domain of one number": instead(INPUT, 'Input("x", domain=(0,))', "input 'x': domain[1]", "write two numbers"),
    "a domain of three numbers": instead(INPUT, 'Input("x", domain=(0, 1, 2))', "input 'x': domain", "two numbers"),
    "a domain from high to low": instead(INPUT, 'Input("x", domain=(3, -3))', "input 'x'", "write (-3, 3)"),
    "one kink": instead(INPUT, 'Input("x", kinks=0.0)', "input 'x': kinks", "(0.0,)"),
    "a differentiable of 1": instead(INPUT, 'Input("x", differentiable=1)', "expected a valid boolean"),
    "half a letter": instead(INPUT, r'Input("x", doc="\ud800")', "surrogates"),
    # The fields of an op.
    "one input alone": instead(f"inputs=({INPUT},)", f"inputs={INPUT}", "inputs", "valid tuple", line=MADE),
    "an output as an input": instead(
        INPUT, 'Output("x", shape=("N",))', "inputs[0]", "an instance of Input", line=MADE
    ),
    "the class of an input": instead(INPUT, "Input", "inputs[0]", "write Input(...)", line=MADE),
    "no inputs": instead(f"inputs=({INPUT},)", "inputs=()", "at least one input", line=MADE),
    "no examples": instead(f"examples=({EXAMPLE},)", "examples=()", "one example", line=MADE),
    "inputs of one name": instead(f"inputs=({INPUT},)", f"inputs=({INPUT}, {INPUT})", "'x' twice", line=MADE),
    "a name with a dot": instead('name="NAME"', 'name="a.b"', "names like", "'a.b'", line=MADE),
    "a name of a built-in op": instead(
        'name="NAME"', 'name="square"', "ops/square.py defines the op 'square' too", line=MADE
    ),
    "an unknown mechanism": instead(
        'mechanism="custom_gradient"', 'mechanism="magic"', "mechanism", "'magic'", line=MADE
    ),
    "a mechanism of another helper": instead(
        'mechanism="custom_gradient"',
        'mechanism="stop_gradient"',
        "expected 'custom_gradient'",
        "got 'stop_gradient'",
        "leave it out",
        line=MADE,
    ),
    "an unknown batching": instead("    cost=cost", '    batching="rows",\n    cost=cost', "batching", line=MADE),
    "a mode without graph": instead(
        "    cost=cost", '    modes=("eager",),\n    cost=cost', "modes with graph", line=MADE
    ),
    "a misspelt mode": instead(
        "    cost=cost", '    modes=("graph", "eagr"),\n    cost=cost', "modes[1]", "'eager'", "got 'eagr'", line=MADE
    ),
    "an unknown null gradient": instead(
        "    cost=cost", '    null_gradients=("z",),\n    cost=cost', "(x), got 'z'", line=MADE
    ),
    "a summary that is None": instead('summary="k x"', "summary=None", "summary", "valid string", line=MADE),
    "an unknown field": instead('summary="k x"', 'sumary="k x"', "TypeError", "sumary", line=MADE),
    # The attributes.
    "an instance of attributes": instead(
        "attrs=Scale,", "attrs=Scale(),", "attrs", "write Scale, the class", line=MADE
    ),
    "attributes of another class": instead("attrs=Scale,", "attrs=dict,", "subclass of Attrs", line=MADE),
    "a wrong default": instead(FIELD, 'k: float = "abc"', "attribute 'k'", "'abc'", line=MADE),
    "no default": instead(FIELD, "k: float", "attribute 'k'", "a default for every attribute", line=MADE),
    "an infinite default": instead(FIELD, 'k: float = float("inf")', "attribute 'k'", line=MADE),
    "a default that raises": instead(
        FIELD, "k: float = __import__('pydantic').Field(default_factory=lambda: 1 / 0)", "ZeroDivisionError"
    ),
    "an infinite bound": instead(
        FIELD, "k: float = __import__('pydantic').Field(2.0, le=float('inf'))", "'k'", "finite bounds", line=MADE
    ),
    "a boundless integer": instead("way: bool = True", "way: int = 1", "attribute 'way'", "bounds", line=MADE),
    "an integer of any size": instead(
        "way: bool = True", "way: int = __import__('pydantic').Field(1, ge=0, le=10**30)", "'way'", "within", line=MADE
    ),
    "an alias": instead(FIELD, "k: float = __import__('pydantic').Field(2.0, alias='K')", "'k'", "alias", line=MADE),
    "an excluded field": instead(FIELD, "k: float = __import__('pydantic').Field(2.0, exclude=True)", "'k'", line=MADE),
    "a field that hides a method": instead(
        FIELD, "numbers: float = 2.0", "'numbers'", "does not use itself", line=MADE
    ),
    "another configuration": instead(
        FIELD, f"model_config = {{'extra': 'allow'}}\n    {FIELD}", "model_config", "leave it out", line=MADE
    ),
    "an input as an attribute": instead(FIELD, "x: float = 2.0", "differ in name", line=MADE),
    # The arguments of declarations.
    "attributes in a dictionary": instead(
        "attrs=Scale", 'attrs={"k": 2.0}', "attrs", "write class OpAttrs(Attrs)", "attrs=OpAttrs", line=MADE
    ),
    "an op without a source": instead(
        '    source="a test",\n', "", "missing 1 required", "write source=... in Op(...)", line=MADE
    ),
    "an op with a misspelt argument": instead(
        'source="a test"', 'sourze="a test"', "unexpected keyword argument 'sourze'", "did you mean source?", line=MADE
    ),
    "an input without a name": instead(INPUT, 'Input(shape=("N",))', "write name=... in Input(...)"),
    # The examples.
    "an example without its input": instead(
        EXAMPLE, 'Example("two", {"z": [1.0]})', "the inputs x; declare Input(optional=True)", line=MADE
    ),
    "an example of a wrong shape": instead(
        EXAMPLE, 'Example("two", {"x": 1.0})', "example 'two'", "does not match [N]", line=MADE
    ),
    "a ragged example": instead(EXAMPLE, 'Example("two", {"x": [[1], [1, 2]]})', "example 'two'", line=MADE),
    "an example that overflows": instead(
        EXAMPLE, 'Example("two", {"x": [1e300]})', "example 'two'", "float32", line=MADE
    ),
    "an example outside of the domain": instead(
        INPUT, 'Input("x", shape=("N",), domain=(1.5, 3.0))', "example 'two'", "got 1; widen the domain", line=MADE
    ),
    "an example of words": instead(EXAMPLE, 'Example("two", {"x": ["one"]})', "example 'two'", "number", line=MADE),
    "an example of an array": instead(EXAMPLE, 'Example("two", {"x": np.ones(2)})', "JSON", "tolist"),
    "an example with NaN": instead(EXAMPLE, 'Example("two", {"x": [float("nan")]})', "JSON", '"NaN"'),
    "an example with a wrong attribute": instead(
        EXAMPLE, 'Example("two", {"x": [1.0]}, {"k": "3"})', "attribute 'k'", "'3'", line=MADE
    ),
    "an example with an unknown attribute": instead(
        EXAMPLE, 'Example("two", {"x": [1.0]}, {"q": 3.0})', "attribute 'q'", line=MADE
    ),
    "an example in a list": instead(f"examples=({EXAMPLE},)", f"examples=[{EXAMPLE}]", "examples", "[...]", line=MADE),
    "examples of one name": instead(f"({EXAMPLE},)", f"({EXAMPLE}, {EXAMPLE})", "'two' twice", line=MADE),
    # The functions.
    "a function that is None": instead(
        "function=custom_gradient(forward, vjp)", "function=None", "function", "callable", line=MADE
    ),
    "a function of no arguments": instead(
        "function=custom_gradient(forward, vjp)", "function=lambda: 1", "function", "takes (x, k=, way=)", line=MADE
    ),
    "a reference without attributes": instead(
        "    reference=reference", "    reference=lambda x: x", "reference", "k=", line=MADE
    ),
    "a claim that is no function": instead("claim=claim,", "claim=Claim(),", "claim", "callable", line=MADE),
    "a claim of no arguments": instead("def claim(attrs):", "def claim():", "claim() takes 0", line=MADE),
    "a claim that returns nothing": instead(
        "    return Claim()", "    return None", "return a Claim, got None", line=MADE
    ),
    "a claim that raises": instead("    return Claim()", "    return 1 / 0", "ZeroDivisionError"),
    "a claim that exits": instead("    return Claim()", "    return quit()", "SystemExit"),
    "a claim of a class": instead(
        "    return Claim()", "    return Claim(Derivative)", "Claim: first", "Derivative(...)"
    ),
    "a surrogate of a number": instead(
        "    return Claim()", "    return Claim(Surrogate(3))", "Surrogate: of", "callable"
    ),
    "a formula of nothing": instead("    return Claim()", "    return Claim(Formula())", "TypeError", "vjp"),
    "a linear of a word": instead("    return Claim()", '    return Claim(linear="no")', "linear", "boolean"),
    "a validate of one argument": instead(
        "def validate(inputs, attrs):", "def validate(inputs):", "validate", line=MADE
    ),
    "a validate that raises": instead("    pass", "    return inputs['z']", "validate raised KeyError"),
    "a sample of no arguments": instead("def sample(rng, dtype, attrs):", "def sample():", "sample", "rng", line=MADE),
    "a singular of no arguments": instead("def singular(inputs, attrs):", "def singular():", "singular", line=MADE),
    "a cost of no arguments": instead("def cost(dims):", "def cost():", "cost", "dims", line=MADE),
    "a cost that raises": instead("    return 1\n", "    return dims['Q']\n", "cost raised KeyError"),
    "a cost of a word": instead("    return 1\n", '    return "much"\n', "cost raised TypeError", line=MADE),
}
