"""``openapi-typescript`` and ``openapi-fetch``: types of both OpenAPI documents, and strict programs that use them."""

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))
from page_examples import ON_THE_PAGE, node

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
PACKAGES = Path(sys.prefix) / "packages" / "node_modules"
STRICT = ["--strict", "--exactOptionalPropertyTypes", "--noUnusedLocals"]
MODULES = ["--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022", "--lib", "es2022,dom"]
OPTIONS = [*STRICT, *MODULES, "--allowImportingTsExtensions", "--noEmit"]
# A program may not silence the compiler.
SILENCED = re.compile(r"\bany\b|\bas\b|@ts-ignore|@ts-nocheck")

EVERY_OPERATION = """
import createClient from "openapi-fetch";
import type { components, paths } from "./pullback.ts";

type Schemas = components["schemas"];
// Each of these leaves out all fields that have a default.
const vjp: Schemas["VjpRequest"] = { inputs: { x: [1, 2] } };
const verify: Schemas["VerifyRequest"] = { inputs: { x: 1 }, gradients: { x: 2 }, tolerances: { relative: 0.1 } };
const check: Schemas["CheckRequest"] = {};
const checks: Schemas["ChecksRequest"] = { ops: ["square"] };

const client = createClient<paths>({ baseUrl: "URL" });
const params = { path: { op: "square" } };
const inputs = { x: [1, 2] };
const shown: (Schemas["TypedTensor"] | null | undefined)[] = [];

const forward = await client.POST("/v1/ops/{op}/forward", { params, body: { inputs } });
shown.push(forward.data?.outputs.y);
const gradients = await client.POST("/v1/ops/{op}/gradients", { params, body: { inputs, order: 3 } });
shown.push(gradients.data?.gradients[2]?.x);
const reason: "not_differentiable" | "disconnected" | "not_sent" | undefined = gradients.data?.absent?.[2]?.x;
const pulled = await client.POST("/v1/ops/{op}/vjp", { params, body: { ...vjp, outputs: true } });
shown.push(pulled.data?.gradients.x, pulled.data?.outputs?.y);
const pushed = await client.POST("/v1/ops/{op}/jvp", { params, body: { inputs, tangents: { x: [1, 1] } } });
shown.push(pushed.data?.tangents.y);
const jacobian = await client.POST("/v1/ops/{op}/jacobian", { params, body: { inputs } });
const block = jacobian.data?.jacobian.y?.x;
if (block && !("values" in block)) shown.push(block);
const hvp = await client.POST("/v1/ops/{op}/hvp", { params, body: { inputs, vectors: { x: [1, 1] } } });
shown.push(hvp.data?.products.x);
const hessian = await client.POST("/v1/ops/{op}/hessian", { params, body: { inputs, diagonal: true } });
shown.push(hessian.data?.diagonal?.x);

for (const tensor of shown) console.log(tensor === null ? reason : tensor && "data" in tensor ? tensor.data : "absent");

const verified = await client.POST("/v1/ops/{op}/verify", { params, body: verify });
const worst: number | "NaN" | "Infinity" | "-Infinity" | undefined = verified.data?.gradients.x?.worst?.ulps;
console.log(verified.data?.verdict, verified.data?.gradients.x?.wrong, worst);
const checked = await client.POST("/v1/ops/{op}/check", { params, body: check });
console.log(checked.data?.verdict, checked.data?.checks[0]?.check);
const numeric = await client.POST("/v1/ops/{op}/numeric", { params, body: { inputs, order: 2 } });
console.log(numeric.data?.of, numeric.data?.derivatives?.x?.status);

// The events of a stream are told apart by their field `event`.
const stream = await client.POST("/v1/checks", {
  body: checks,
  headers: { Accept: "application/x-ndjson" },
  parseAs: "text",
});
function told(event: Schemas["ChecksAnswer"]): string {
  switch (event.event) {
    case "start":
      return event.ops.join();
    case "finding":
      return event.finding.check;
    case "report":
      return event.report.verdict;
    case "summary":
      return String(event.pass);
    case "progress":
      return "";
    case "error":
      return event.problem.detail;
  }
}
const lines = (stream.data ?? "").trim().split("\\n");
console.log(lines.map((line) => told(JSON.parse(line))).filter((line) => line !== "").join(" "));

const ops = await client.GET("/v1/ops");
console.log(ops.data?.ops.some((op) => op.available && op.claim?.linear));
const contract = await client.GET("/v1/ops/{op}", { params });
console.log(contract.data?.inputs[0]?.domain[0] !== undefined, contract.data?.default_mode.vjp?.float32);
const ready = await client.GET("/health/ready");
const status: "ready" | undefined = ready.data?.status;
console.log(status, ready.data?.machine[0]?.status);

const { error } = await client.POST("/v1/ops/{op}/vjp", { params, body: { inputs: { z: 1 } } });
console.log(error?.status, error?.errors[0]?.loc, error?.errors[0]?.got);
"""
PRINTED = """\
[ 1, 4 ]
disconnected
[ 2, 4 ]
[ 1, 4 ]
[ 2, 4 ]
[ [ 2, 0 ], [ 0, 4 ] ]
[ 2, 2 ]
[ 2, 2 ]
pass 0 0
pass contract
vjp [ 'ok', 'ok' ]
square pass 1
true
true xla
ready ok
422 [ 'inputs', 'z' ] z
"""

ONE_CALL = """
import createClient from "openapi-fetch";
import type { paths } from "./pullback.ts";

const client = createClient<paths>({ baseUrl: "URL" });
const params = { path: { op: "square" } };
const square = await client.POST("/v1/ops/{op}/vjp", { params, body: { inputs: { x: [1, 2] }, mode: "eager" } });
const dx = square.data?.gradients.x;
if (dx && "data" in dx) console.log(dx.data);
"""
WRONG = {
    "a field of another name": ("{ inputs: {", "{ input: {"),
    "a mode of another name": ('"eager"', '"eagerly"'),
    "a field of no answer": ("?.gradients.x;", "?.products.x;"),
}


@pytest.fixture(scope="module")
def folder(url, tmp_path_factory) -> Path:
    """A folder with the types of the document."""
    folder = tmp_path_factory.mktemp("typescript")
    (folder / "node_modules").symlink_to(PACKAGES)
    with urllib.request.urlopen(url + "/openapi.json", timeout=60) as response:
        (folder / "pullback.json").write_bytes(response.read())
    run(folder, "node_modules/openapi-typescript/bin/cli.js", "pullback.json", "-o", "pullback.ts")
    return folder


def run(folder: Path, *command: str) -> str:
    """Run a program with Node.js, which reads TypeScript without its types; return what it prints."""
    done = start(folder, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def start(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([node(), *command], cwd=folder, check=False, capture_output=True, text=True, timeout=120)


def compiled(folder: Path, *programs: str) -> str:
    """Write programs, ``program.ts`` and further ones, and compile them; return the compiler's errors."""
    files = [f"program{number or ''}.ts" for number in range(len(programs))]
    for file, program in zip(files, programs, strict=True):
        (folder / file).write_text(program, encoding="utf-8")
    return start(folder, "node_modules/typescript/bin/tsc", *OPTIONS, *files).stdout


def test_every_operation(folder, url):
    program = EVERY_OPERATION.replace("URL", url)
    assert not SILENCED.search(program)
    assert compiled(folder, program) == ""
    assert run(folder, "program.ts") == PRINTED


def test_one_call(folder, url):
    program = ONE_CALL.replace("URL", url)
    assert compiled(folder, program) == ""
    assert run(folder, "program.ts") == "[ 2, 4 ]\n"


def test_mistakes_are_found_by_the_compiler(folder):
    assert all(right in ONE_CALL for right, _ in WRONG.values())
    errors = compiled(folder, ONE_CALL, *(ONE_CALL.replace(right, wrong) for right, wrong in WRONG.values()))
    assert set(re.findall(r"^(\w+)\.ts.*: error TS2", errors, re.MULTILINE)) == {"program1", "program2", "program3"}


def test_the_program_on_the_page(folder, url):
    [(program, output)] = re.findall(
        r"```ts\n(.*?)```\n+```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    program = program.replace(ON_THE_PAGE, url)
    assert compiled(folder, program) == ""
    assert run(folder, "program.ts") == output
