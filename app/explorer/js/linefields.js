/** The fields of a slice: the example that it goes through, its direction v and its cotangent c. */

import { choice, fill, line, make } from "./dom.js";
import { json, shown } from "./entered.js";
import { flatIndex } from "./fault.js";
import { jsonOf, numbers, shapeOf } from "./numbers.js";
import { directionOf, isFloat } from "./slice.js";

/** @typedef {import("./types.d.ts").Contract} Contract */
/** @typedef {Record<string, unknown>} Tensors */

// No text that a person enters.
const NOT_GIVEN = "\0";
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
    const sizes = Object.values(this.#known).flatMap((x) => numbers(x).map(Math.abs)).filter(Number.isFinite);
    const size = Math.min(4, Math.max(1, ...sizes.slice(0, 1024)));
    return /** @type {[number, number]} */ ([-size, size]);
  }

  /** The point, the direction and the cotangents. Raises an error for texts that are none. */
  get value() {
    const at = this.#at;
    const along = this.address.get("along", this.#entries[0]?.value ?? "random:1");
    const [kind = "", ...rest] = along.split(":");
    const { contract } = this;
    const { dtype } = this.settings;
    for (const slot of contract.inputs) if (!slot.optional && !(slot.name in at)) throw new Error(`x₀: expected the input ${slot.name} too, got ${Object.keys(at).join(", ") || "nothing"}`);
    /** @type {Tensors} */
    let direction;
    if (kind === "random") direction = directionOf(contract, at, dtype, { seed: Number(rest[0]) || 1 });
    else if (kind === "given") direction = tensors("direction v", rest.join(":"));
    else if (Number(rest[0]) in numbers(at[kind] ?? [])) direction = directionOf(contract, at, dtype, { input: kind, index: Number(rest[0]) });
    else throw new Error(`direction v: expected a number of an input, such as ${this.#entries[0]?.value ?? "x:0"}, got ${shown(along)}`);
    needLine(at, direction);
    const c = this.address.get("c");
    return { at, direction, cotangents: c.trim() ? tensors("cotangent c", c) : null };
  }

  /** The inputs x₀. */
  get #at() {
    const given = this.address.get("at", NOT_GIVEN);
    return given === NOT_GIVEN ? /** @type {Tensors} */ (this.example?.inputs ?? {}) : tensors("x₀", given);
  }

  /** The inputs x₀, none while their text is no JSON. */
  get #known() {
    try {
      return this.#at;
    } catch {
      return {};
    }
  }

  /** The direction in JSON, to be changed; none while the fields have an error. */
  get #suggested() {
    try {
      return jsonOf(this.value.direction);
    } catch {
      return "";
    }
  }

  /**
   * Pass through the point of a finding, along the number at fault.
   *
   * @param {import("./verdict.js").Finding} finding
   */
  pass(finding) {
    const { point, input } = finding;
    if (!point) return;
    const name = input !== null && input in point.inputs ? input : "";
    const c = Object.keys(point.cotangents ?? {}).length ? jsonOf(point.cotangents) : null;
    this.address.set({ at: jsonOf(point.inputs), along: name ? `${name}:${flatIndex(finding)}` : "random:1", c });
    this.#draw();
  }

  /** The numbers of the float inputs, as choices. */
  get #entries() {
    const at = this.#known;
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
    const set = (/** @type {Record<string, string | null>} */ fields) => {
      this.address.set(fields);
      this.#draw();
      this.changed();
    };
    const names = this.contract.examples.map((each) => each.name);
    const isAt = this.address.get("at", NOT_GIVEN) !== NOT_GIVEN;
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
        this.address.set({ at: null, from: null, to: null, c: null, pin: null });
        this.settings.take(name);
      }),
      isAt && line("x₀, in JSON", this.address.get("at"), (text) => set({ at: text }), { size: 28 }),
      choice("direction v", options, along, (value) => set({ along: value === "given" ? `given:${this.#suggested}` : value })),
      isGiven && line("v, in JSON", along.slice("given:".length), (text) => set({ along: `given:${text}` }), { size: 28 }),
      line("cotangent c, in JSON (empty: 1, 1/2, 1/3, …)", this.address.get("c"), (text) => set({ c: text.trim() ? text : null }), { size: 20, placeholder: `{"${this.contract.outputs[0]?.name}": …}` }),
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
 * Return the tensors by name of a text in JSON.
 *
 * @param {string} what
 * @param {string} text
 * @returns {Tensors}
 */
function tensors(what, text) {
  const example = '{"x": [1, 0]}';
  const value = json(what, text, example);
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  throw new Error(`${what}: expected JSON with a tensor by name, such as ${example}, got ${shown(text)}`);
}

/**
 * Raise an error if there is no line through a point along a direction.
 *
 * @param {Tensors} at
 * @param {Tensors} direction
 */
function needLine(at, direction) {
  for (const [name, v] of Object.entries(direction)) {
    if (!(name in at)) throw new Error(`direction v: expected inputs among ${Object.keys(at).join(", ")}, got ${name}`);
    const [own, needed] = [shapeOf(v), shapeOf(at[name])].map((shape) => `[${shape.join(", ")}]`);
    if (own !== needed) throw new Error(`direction v of ${name}: expected the shape ${needed} of ${name}, got ${own}`);
    for (const [what, tensor] of Object.entries({ [`x₀, ${name}`]: at[name], [`direction v of ${name}`]: v })) {
      if (numbers(tensor).length !== shapeOf(tensor).reduce((size, length) => size * length, 1)) throw new Error(`${what}: expected rows of one length, got ${shown(jsonOf(tensor))}`);
      const lost = [tensor].flat(16).find((each) => typeof each === "string" || !Number.isFinite(Number(each)));
      if (lost !== undefined) throw new Error(`${what}: expected finite numbers along a line, got ${shown(jsonOf(lost))}`);
    }
  }
}
