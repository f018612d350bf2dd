/** The fields of a slice: the example that it goes through, its direction v and its cotangent c. */

import { choice, fill, line, make } from "./dom.js";
import { numbers, shapeOf } from "./numbers.js";
import { directionOf, isFloat } from "./slice.js";

/** @typedef {import("./types.d.ts").Contract} Contract */
/** @typedef {Record<string, unknown>} Tensors */

// The most numbers of an input that are offered one by one.
const OFFERED = 32;

/** The fields, in the address: `example`, or else `at`, the inputs in JSON, then `along` and `c`. */
export class LineFields {
  /**
   * @param {Contract} contract
   * @param {import("./settings.js").Settings} settings
   * @param {() => void} changed
   */
  constructor(contract, settings, changed) {
    this.contract = contract;
    this.settings = settings;
    this.address = settings.address;
    this.changed = changed;
    this.root = make("div", { class: "fields", role: "group", "aria-label": "Line of the plot" });
    settings.addEventListener("change", () => this.#draw());
    this.#draw();
  }

  get example() {
    const name = this.address.get("example");
    return this.contract.examples.find((each) => each.name === name) ?? this.contract.examples[0];
  }

  /** The range of t that is shown first: far enough to see the function bend. */
  get reach() {
    const sizes = Object.values(this.value.at).flatMap((x) => numbers(x).map(Math.abs)).filter(Number.isFinite);
    const size = Math.min(4, Math.max(1, ...sizes.slice(0, 1024)));
    return /** @type {[number, number]} */ ([-size, size]);
  }

  /** The point, the direction and the cotangents. Raises an error for texts that are not JSON. */
  get value() {
    const at = this.#at;
    const along = this.address.get("along", this.#entries[0]?.value ?? "random:1");
    const [kind = "", ...rest] = along.split(":");
    const { contract } = this;
    const { dtype } = this.settings;
    /** @type {Tensors} */
    let direction;
    if (kind === "random") direction = directionOf(contract, at, dtype, { seed: Number(rest[0]) || 1 });
    else if (kind === "given") direction = parsed("direction", rest.join(":") || "{}");
    else direction = directionOf(contract, at, dtype, { input: kind, index: Number(rest[0]) });
    const c = this.address.get("c");
    return { at, direction, cotangents: c ? parsed("cotangents", c) : null };
  }

  /** The inputs x₀. */
  get #at() {
    const given = this.address.get("at");
    return given ? parsed("inputs", given) : /** @type {Tensors} */ (this.example?.inputs ?? {});
  }

  /**
   * Pass through the point of a finding, along the number at fault.
   *
   * @param {import("./verdict.js").Finding} finding
   */
  pass({ point, input, worst }) {
    if (!point) return;
    const name = input !== null && input in point.inputs ? input : "";
    const shape = shapeOf(point.inputs[name]);
    // A call with one element of an elementwise op has no index.
    const index = worst?.index?.length === shape.length ? worst.index.reduce((flat, i, k) => flat * (shape[k] ?? 1) + i, 0) : 0;
    const c = Object.keys(point.cotangents ?? {}).length ? JSON.stringify(point.cotangents) : "";
    this.address.set({ at: JSON.stringify(point.inputs), along: name ? `${name}:${index}` : "random:1", c });
    this.#draw();
  }

  /** The numbers of the float inputs, as choices. */
  get #entries() {
    const at = this.#at;
    return this.contract.inputs
      .filter((slot) => isFloat(slot, this.settings.dtype) && slot.name in at)
      .flatMap((slot) => {
        const shape = shapeOf(at[slot.name]);
        const count = Math.min(OFFERED, shape.reduce((product, size) => product * size, 1));
        return Array.from({ length: count }, (_, i) => ({ value: `${slot.name}:${i}`, text: `${slot.name}${place(i, shape)}` }));
      });
  }

  #draw() {
    const along = this.address.get("along", this.#entries[0]?.value ?? "random:1");
    const isGiven = along.startsWith("given:");
    const set = (/** @type {Record<string, string>} */ fields) => {
      this.address.set(fields);
      this.#draw();
      this.changed();
    };
    const given = () => JSON.stringify(this.value.direction);
    const names = this.contract.examples.map((each) => each.name);
    const isAt = this.address.get("at") !== "";
    const options = [
      ...this.#entries,
      ...[1, 2, 3].map((seed) => ({ value: `random:${seed}`, text: `random ${seed}` })),
      { value: isGiven ? along : "given", text: "given" },
    ];
    // Of many numbers, only the first are offered.
    if (!options.some(({ value }) => value === along)) options.unshift({ value: along, text: along });
    fill(
      this.root,
      choice("through example", isAt ? ["", ...names] : names, isAt ? "" : (this.example?.name ?? ""), (name) => {
        this.address.set({ at: "", from: "", to: "", c: "" });
        this.settings.take(name);
      }),
      isAt && line("x₀, in JSON", this.address.get("at"), (text) => set({ at: text }), { size: 28 }),
      choice("direction v", options, along, (value) => set({ along: value === "given" ? `given:${given()}` : value })),
      isGiven && line("v, in JSON", along.slice("given:".length), (text) => set({ along: `given:${text}` }), { size: 28 }),
      line("cotangent c, in JSON (empty: ones)", this.address.get("c"), (text) => set({ c: text }), { size: 20, placeholder: `{"${this.contract.outputs[0]?.name}": …}` }),
    );
  }
}

/**
 * @param {number} i
 * @param {number[]} shape
 * @returns {string}
 */
function place(i, shape) {
  if (!shape.length) return "";
  const index = [];
  let left = i;
  for (const size of shape.toReversed()) {
    index.unshift(left % size);
    left = Math.floor(left / size);
  }
  return `[${index.join(", ")}]`;
}

/**
 * @param {string} what
 * @param {string} text
 * @returns {Tensors}
 */
function parsed(what, text) {
  try {
    const value = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  } catch {
    // The error below says what is expected.
  }
  throw new Error(`${what}: expected JSON with a tensor by name, such as {"x": [1, 0]}, got ${text}`);
}
