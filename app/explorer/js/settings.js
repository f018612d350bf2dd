/** What holds for the whole page of an op: the attributes, the dtype and the mode. */

import { attributeFields, attributesOf } from "./form.js";
import { choice, fill, make } from "./dom.js";

/** @typedef {import("./types.d.ts").Contract} Contract */

const WIDEST = ["complex128", "complex64", "float64", "float32", "bfloat16", "float16"];

/** The settings, in the address. The event `change` says that one of them has changed. */
export class Settings extends EventTarget {
  /**
   * @param {Contract} contract
   * @param {import("./address.js").Address} address
   */
  constructor(contract, address) {
    super();
    this.contract = contract;
    this.address = address;
    this.schemas = contract.attrs.properties ?? {};
    this.root = make("div", { class: "fields", role: "group", "aria-label": "Attributes, dtype and mode" });
    this.#draw();
    address.addEventListener("restored", () => {
      this.#draw();
      this.dispatchEvent(new Event("change"));
    });
  }

  /** The float and complex dtypes of the op, the widest first. */
  get floats() {
    return WIDEST.filter((dtype) => this.contract.dtypes.includes(dtype));
  }

  get dtype() {
    return this.address.get("dtype", this.floats[0] ?? this.contract.dtypes[0]);
  }

  get mode() {
    return this.address.get("mode");
  }

  /** The attributes: those of the example, with what the address has. */
  get attrs() {
    return { ...this.#base, ...attributesOf(this.schemas, this.address.all("a.")) };
  }

  /** The attributes of the example, for which its inputs are meant. */
  get #base() {
    const { examples } = this.contract;
    return (examples.find((each) => each.name === this.address.get("example")) ?? examples[0])?.attrs ?? {};
  }

  /**
   * Take the attributes of an example, by its name.
   *
   * @param {string} example
   */
  take(example) {
    this.address.clear("a.");
    this.address.set({ example: example === this.contract.examples[0]?.name ? null : example, along: null });
    this.#draw();
    this.dispatchEvent(new Event("change"));
  }

  /**
   * Use the attributes, the dtype and the mode of a finding. The caller draws the plot.
   *
   * @param {{ attrs: Record<string, unknown>, dtype: string, mode: string }} finding
   */
  use({ attrs, dtype, mode }) {
    this.address.clear("a.");
    const own = Object.entries(attrs).filter(([name, value]) => value !== this.#base[name]);
    this.address.set(Object.fromEntries(own.map(([name, value]) => [`a.${name}`, String(value)])));
    this.address.set({ dtype: dtype === this.floats[0] ? null : dtype, mode: mode || null });
    this.#draw();
  }

  #draw() {
    const set = (/** @type {string} */ name, /** @type {string | null} */ text) => {
      this.address.set({ [name]: text });
      this.dispatchEvent(new Event("change"));
    };
    const { contract, floats } = this;
    const schemas = Object.fromEntries(
      Object.entries(this.schemas).map(([name, schema]) => [name, { ...schema, default: this.#base[name] ?? schema.default }]),
    );
    fill(
      this.root,
      ...attributeFields(schemas, this.address.all("a."), (name, text) => set(`a.${name}`, text)),
      floats.length > 1 && choice("dtype", floats, this.dtype, (text) => set("dtype", text === floats[0] ? null : text)),
      choice("mode", [{ value: "", text: "the default" }, ...contract.modes], this.mode, (text) => set("mode", text || null)),
    );
  }
}
