/** The lines of other programs that ask the same. */

import { isComplex, jsonOf } from "./numbers.js";

/** @typedef {{ op: string, operation: string, body: Record<string, any> }} Asked */

const LONGEST_ARGUMENT = 100_000;
// What the lines for a framework call their own, and the words of Python.
const TAKEN = new Set(
  (
    "c f g y xs pullback pullback_of_y jax jnp torch print tuple float False None True and as assert async await break class continue " +
    "def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield"
  ).split(" "),
);

/**
 * Return the lines by language.
 *
 * @param {Asked} asked
 * @param {import("./types.d.ts").Contract} contract
 * @param {string} origin
 * @returns {Record<string, string>}
 */
export function snippets(asked, contract, origin) {
  // The functions of frameworks have the parameters of the page, as constants. In these lines, a pair of a complex
  // number would be two real ones.
  const hasPairs = [...contract.inputs, ...contract.outputs].some((slot) => slot.dtypes.some(isComplex));
  const inFrameworks = contract.claim !== null && !hasPairs && !("parameters" in asked.body) && !("wrt" in asked.body);
  return {
    curl: curl(asked, origin),
    Python: python(asked, origin),
    ...(inFrameworks ? { JAX: framework(asked, contract, origin, JAX), PyTorch: framework(asked, contract, origin, TORCH) } : {}),
    JavaScript: javascript(asked, origin),
  };
}

/**
 * @param {Asked} asked
 * @param {string} origin
 */
function curl({ op, operation, body }, origin) {
  const json = jsonOf(body);
  const text = json.replaceAll("'", "'\\''");
  // An argument has at most 128 KiB.
  if (text.length > LONGEST_ARGUMENT) return `curl -s ${origin}/v1/ops/${op}/${operation} \\\n  -H 'Content-Type: application/json' --data-binary @- <<'END'\n${json}\nEND`;
  return `curl -s ${origin}/v1/ops/${op}/${operation} \\\n  -H 'Content-Type: application/json' \\\n  -d '${text}'`;
}

/**
 * @param {Asked} asked
 * @param {string} origin
 */
function python({ op, operation, body }, origin) {
  const { inputs, ...others } = body;
  const options = Object.entries(others).map(([name, value]) => `, ${name}=${literal(value)}`);
  return `import pullback\n\nwith pullback.Client("${origin}") as client:\n    result = client.op("${op}").${operation}(${literal(inputs)}${options.join("")})\nprint(result)`;
}

/** What the two frameworks call the same things. */
const JAX = {
  head: "import jax\nimport jax.numpy as jnp\nimport pullback.jax",
  head64: '\n\njax.config.update("jax_enable_x64", True)',
  module: "pullback.jax",
  array: "jnp.array",
  dtype: "jnp.",
  ones: "jnp.ones_like",
  zeros: "jnp.zeros_like",
  functions: "jax",
  jacobian: "jax.jacobian",
};
const TORCH = {
  head: "import torch\nimport pullback.torch",
  head64: "",
  module: "pullback.torch",
  array: "torch.tensor",
  dtype: "dtype=torch.",
  ones: "torch.ones_like",
  zeros: "torch.zeros_like",
  functions: "torch.func",
  jacobian: "torch.func.jacrev",
};

/**
 * Return the lines for a framework: the op as a function of its differentiable inputs, and a transform of it.
 *
 * @param {Asked} asked
 * @param {import("./types.d.ts").Contract} contract
 * @param {string} origin
 * @param {typeof JAX} words
 */
function framework({ op, operation, body }, contract, origin, words) {
  const sent = contract.inputs.filter((slot) => slot.name in body["inputs"]);
  const variables = variablesOf(contract);
  const named = (/** @type {import("./types.d.ts").Slot} */ slot) => variables.get(slot.name) ?? slot.name;
  const live = sent.filter((slot) => slot.differentiable).map(named);
  const every = contract.inputs.map((slot) => (slot.name in body["inputs"] ? named(slot) : "None"));
  const array = (/** @type {unknown} */ value, /** @type {import("./types.d.ts").Slot} */ slot) => `${words.array}(${literal(value)}, ${words.dtype}${dtypeOf(slot, body["dtype"], contract)})`;
  const names = live.join(", ");
  const tuple = (/** @type {string[]} */ parts) => `(${parts.join(", ")}${parts.length === 1 ? "," : ""})`;
  const along = (/** @type {Record<string, unknown>} */ given) =>
    tuple(sent.filter((slot) => slot.differentiable).map((slot) => (slot.name in given ? array(given[slot.name], slot) : `${words.zeros}(${named(slot)})`)));
  const lines = [
    body["dtype"] === "float64" ? words.head + words.head64 : words.head,
    "",
    `f = ${words.module}.remote("${op}", url="${origin}"${attributes(body)})`,
    ...sent.map((slot) => `${named(slot)} = ${array(body["inputs"][slot.name], slot)}`),
  ];
  if (operation === "forward") return [...lines, `print(f(${every.join(", ")}))`].join("\n");
  // The transforms take outputs of floats alone.
  const places = contract.outputs.flatMap((slot, i) => (slot.differentiable ? [i] : []));
  const called = `f(${every.join(", ")})`;
  const floats = places.length === 1 ? `${called}[${places[0]}]` : `tuple(y[i] for y in [${called}] for i in ${literal(places)})`;
  const isWhole = places.length === contract.outputs.length;
  const call = live.length === every.length && isWhole ? "f" : `lambda ${names}: ${isWhole ? called : floats}`;
  const { functions } = words;
  const given = body["cotangents"];
  const outputs = contract.outputs.filter((slot) => slot.differentiable);
  const ys = outputs.map((slot, i) => {
    const y = outputs.length > 1 ? `y[${i}]` : "y";
    return given ? (slot.name in given ? array(given[slot.name], slot) : `${words.zeros}(${y})`) : `${words.ones}(${y})`;
  });
  lines.push(`g = ${call}`, `y, pullback_of_y = ${functions}.vjp(g, ${names})`, `c = ${ys.length > 1 ? tuple(ys) : ys[0]}`);
  const pulled = `lambda *xs: ${functions}.vjp(g, *xs)[1](c)`;
  const argnums = tuple(live.map((_, i) => String(i)));
  const last = {
    jvp: `${functions}.jvp(g, ${tuple(live)}, ${along(body["tangents"] ?? {})})`,
    jacobian: `${words.jacobian}(g, argnums=${argnums})(${names})`,
    hvp: `${functions}.vjp(${pulled}, ${names})[1](${along(body["vectors"] ?? {})})`,
    hessian: `${words.jacobian}(${pulled}, argnums=${argnums})(${names})`,
  }[operation];
  lines.push(`print(${last ?? "pullback_of_y(c)"})`);
  if (operation === "gradients" && body["order"] >= 2) {
    lines.push(`print(${functions}.vjp(${pulled}, ${names})[1](${tuple(live.map((name) => `${words.ones}(${name})`))}))`);
  }
  return lines.join("\n");
}

/**
 * @param {Asked} asked
 * @param {string} origin
 */
function javascript({ op, operation, body }, origin) {
  const quoted = `'${jsonOf(body).replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  return `const response = await fetch("${origin}/v1/ops/${op}/${operation}", {\n  method: "POST",\n  headers: { "Content-Type": "application/json" },\n  body: ${quoted},\n});\nconsole.log(await response.json());`;
}

/**
 * Return the variable of each input: its name, or the nearest one that stands for nothing else.
 *
 * @param {import("./types.d.ts").Contract} contract
 */
function variablesOf({ inputs }) {
  const names = new Set(inputs.map((slot) => slot.name));
  const free = (/** @type {string} */ name) => {
    let found = name;
    while (TAKEN.has(found) || (found !== name && names.has(found))) found += "_";
    return found;
  };
  return new Map(inputs.map(({ name }) => [name, free(name)]));
}

/**
 * Return the dtype of an input or output: that of the op's type variable if it lists the dtypes of the op.
 *
 * @param {import("./types.d.ts").Slot} slot
 * @param {string} dtype
 * @param {import("./types.d.ts").Contract} contract
 */
function dtypeOf(slot, dtype, contract) {
  return String(slot.dtypes) === String(contract.dtypes) ? dtype : (slot.dtypes[0] ?? dtype);
}

/** @param {Record<string, any>} body */
function attributes(body) {
  return Object.keys(body["attrs"] ?? {}).length ? `, attrs=${literal(body["attrs"])}` : "";
}

/**
 * Return a value of JSON as Python writes it.
 *
 * @param {unknown} value
 * @returns {string}
 */
function literal(value) {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null) return "None";
  if (value === "NaN" || value === "Infinity" || value === "-Infinity") return `float("${value}")`;
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
  }
  return jsonOf(value);
}
