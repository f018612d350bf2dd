/** The lines of other programs that ask the same. */

/** @typedef {{ op: string, operation: string, body: Record<string, any> }} Asked */

/**
 * Return the lines by language.
 *
 * @param {Asked} asked
 * @param {import("./types.d.ts").Contract} contract
 * @param {string} origin
 * @returns {Record<string, string>}
 */
export function snippets(asked, contract, origin) {
  const inFrameworks = contract.claim !== null;
  return {
    curl: curl(asked, origin),
    Python: python(asked, origin),
    ...(inFrameworks ? { JAX: jax(asked, contract, origin), PyTorch: torch(asked, contract, origin) } : {}),
    JavaScript: javascript(asked, origin),
  };
}

/**
 * @param {Asked} asked
 * @param {string} origin
 */
function curl({ op, operation, body }, origin) {
  const text = JSON.stringify(body).replaceAll("'", "'\\''");
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

/**
 * @param {Asked} asked
 * @param {import("./types.d.ts").Contract} contract
 * @param {string} origin
 */
function jax({ op, operation, body }, contract, origin) {
  const names = contract.inputs.map((slot) => slot.name);
  const arrays = names.map((name) => `${name} = jnp.array(${literal(body["inputs"][name])})`);
  const call = names.join(", ");
  const live = names.filter((_, i) => contract.inputs[i]?.differentiable);
  const places = `(${live.map((name) => names.indexOf(name)).join(", ")},)`;
  const lines = {
    forward: `print(f(${call}))`,
    jacobian: `print(jax.jacobian(f, argnums=${places})(${call}))`,
    hessian: `print(jax.hessian(lambda *xs: sum(y.sum() for y in jax.tree.leaves(f(*xs))), argnums=${places})(${call}))`,
  }[operation];
  const total = "lambda *xs: sum(y.sum() for y in jax.tree.leaves(f(*xs)))";
  const last = lines ?? `print(jax.grad(${total}, argnums=${places})(${call}))`;
  return `import jax\nimport jax.numpy as jnp\nimport pullback.jax\n\nf = pullback.jax.remote("${op}", url="${origin}"${attributes(body)})\n${arrays.join("\n")}\n${last}`;
}

/**
 * @param {Asked} asked
 * @param {import("./types.d.ts").Contract} contract
 * @param {string} origin
 */
function torch({ op, operation, body }, contract, origin) {
  const names = contract.inputs.map((slot) => slot.name);
  const arrays = contract.inputs.map(
    (slot) =>
      `${slot.name} = torch.tensor(${literal(body["inputs"][slot.name])}${slot.differentiable ? ", dtype=torch.float32, requires_grad=True" : ""})`,
  );
  const call = `f(${names.join(", ")})`;
  const gradients = contract.inputs.filter((slot) => slot.differentiable).map((slot) => `print(${slot.name}.grad)`);
  const several = contract.outputs.length > 1;
  const total = several ? `sum(y.sum() for y in ${call})` : `${call}.sum()`;
  const last = operation === "forward" ? `print(${call})` : `${total}.backward()\n${gradients.join("\n")}`;
  return `import torch\nimport pullback.torch\n\nf = pullback.torch.remote("${op}", url="${origin}"${attributes(body)})\n${arrays.join("\n")}\n${last}`;
}

/**
 * @param {Asked} asked
 * @param {string} origin
 */
function javascript({ op, operation, body }, origin) {
  return `const response = await fetch("${origin}/v1/ops/${op}/${operation}", {\n  method: "POST",\n  headers: { "Content-Type": "application/json" },\n  body: JSON.stringify(${JSON.stringify(body)}),\n});\nconsole.log(await response.json());`;
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
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}
