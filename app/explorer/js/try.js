/** The section to try the op: inputs, an operation and its directions, the answer, and the same in other languages. */

import { shown } from "./answer.js";
import { choice, fill, line, make } from "./dom.js";
import { pageOf } from "./address.js";
import { json } from "./entered.js";
import { jsonOf, onesLike } from "./numbers.js";
import { AGAIN, Recovery } from "./recovery.js";
import { inWords, isAborted } from "./service.js";
import { snippets } from "./snippets.js";

/** @typedef {import("./types.d.ts").Contract} Contract */

/** The operations, each with its fields of tensors: by input or by output, required or not. */
const OPERATIONS = /** @type {Record<string, { of: "inputs" | "outputs", field: string, isRequired: boolean }[]>} */ ({
  forward: [],
  gradients: [{ of: "outputs", field: "cotangents", isRequired: false }],
  vjp: [{ of: "outputs", field: "cotangents", isRequired: false }],
  jvp: [{ of: "inputs", field: "tangents", isRequired: true }],
  jacobian: [],
  hvp: [
    { of: "inputs", field: "vectors", isRequired: true },
    { of: "outputs", field: "cotangents", isRequired: false },
  ],
  hessian: [{ of: "outputs", field: "cotangents", isRequired: false }],
  numeric: [
    { of: "outputs", field: "cotangents", isRequired: false },
    { of: "inputs", field: "tangents", isRequired: false },
  ],
});
const ORDERED = ["gradients", "numeric"];
const WITH_RESPECT_TO = ["gradients", "vjp", "jacobian", "hvp", "hessian"];
// Choices of what to differentiate with respect to, beside single parameters.
const INPUTS = "inputs";
const ALL = "inputs and parameters";

/** What to try, in the address: `t` is the operation, `t.inputs.x` and the like its tensors. */
export class Try {
  /**
   * @param {import("./service.js").Service} service
   * @param {Contract} contract
   * @param {import("./settings.js").Settings} settings
   */
  constructor(service, contract, settings) {
    this.service = service;
    this.contract = contract;
    this.settings = settings;
    this.address = settings.address;
    this.running = new AbortController();
    this.recovery = new Recovery(service, () => this.#run(), () => this.#refuse(AGAIN));
    this.form = make("form", { class: "try", onsubmit: (/** @type {Event} */ event) => this.#submit(event) });
    this.answer = make("div", { class: "answer", "aria-live": "polite" });
    this.code = make("div", { class: "snippets" });
    this.root = make("div", {}, this.form, this.answer, this.code);
    settings.addEventListener("change", () => this.#draw());
    this.#draw();
    if (this.address.get("t")) this.run();
  }

  get operation() {
    const name = this.address.get("t", "gradients");
    return name in OPERATIONS ? name : "gradients";
  }

  /** The example whose inputs and attributes are those that are not given. */
  get example() {
    const { examples } = this.contract;
    return examples.find((each) => each.name === this.address.get("example")) ?? examples[0];
  }

  /** Ask the service, and show the answer, as a person asks for it. */
  async run() {
    this.recovery.begin();
    await this.#run();
  }

  async #run() {
    this.running.abort();
    const running = (this.running = new AbortController());
    this.answer.querySelector(".problem")?.remove();
    try {
      const body = this.#body();
      const began = performance.now();
      const path = `/v1/ops/${encodeURIComponent(this.contract.name)}/${this.operation}`;
      const answer = await this.service.post(path, body, running.signal);
      const timing = make("p", { class: "muted small" }, `in ${this.settings.dtype}, answered in ${(performance.now() - began).toFixed(1)} ms, there and back`);
      fill(this.answer, timing, ...shown(answer, /** @type {any} */ (body).inputs));
      this.answer.classList.remove("stale");
      this.recovery.end();
    } catch (error) {
      if (isAborted(error)) return;
      this.#refuse(inWords(error));
      this.recovery.end(error);
    }
  }

  /** @param {string} text */
  #refuse(text) {
    fill(this.answer, make("p", { class: "problem", role: "alert" }, text));
    this.answer.classList.remove("stale");
  }

  /** @param {Event} event */
  #submit(event) {
    event.preventDefault();
    this.address.set({ t: this.operation });
    return this.run();
  }

  #draw() {
    const { contract, example } = this;
    const fields = OPERATIONS[this.operation] ?? [];
    const derived = contract.derivations.map((name) => `${contract.name}.${name}`);
    const operations = Object.keys(OPERATIONS).filter((name) => this.#has(name));
    const redraw = (/** @type {string} */ name) => {
      this.address.set({ t: name });
      this.#draw();
    };
    fill(
      this.form,
      make(
        "div",
        { class: "fields" },
        choice("operation", operations, this.operation, redraw),
        ORDERED.includes(this.operation) && choice("order", this.operation === "numeric" ? ["1", "2"] : ["1", "2", "3", "4"], this.#order, (text) => this.#set("order", text)),
        this.operation !== "numeric" && choice("rounding errors", ["hidden", "shown"], "digits" in this.#digits ? "shown" : "hidden", (text) => this.#set("digits", text === "shown" ? "1" : null)),
        contract.examples.length > 1 && choice("example", contract.examples.map((each) => each.name), example?.name ?? "", (name) => this.#take(name)),
        derived.length > 0 && choice("derived op", ["", ...derived], "", (name) => name && location.assign(pageOf(name))),
      ),
      ...contract.inputs.map((slot) => this.#tensor("inputs", slot, example?.inputs[slot.name], slot.optional ? "left out" : "")),
      ...fields.flatMap(({ of, field, isRequired }) =>
        contract[of]
          .filter((slot) => slot.differentiable)
          .map((slot) => this.#tensor(field, slot, undefined, isRequired ? `ones in the shape of ${slot.name}` : "ones")),
      ),
      this.#parameters(),
      make("div", { class: "fields" }, make("button", { type: "submit", class: "primary" }, "Evaluate"), make("span", { class: "muted small" }, `in ${this.settings.dtype}`)),
    );
    this.#changed();
  }

  /** Return the fields of an op with parameters: whose values it uses, and what to differentiate with respect to. */
  #parameters() {
    const { parameters = [], parameters_digest: own = "" } = this.contract;
    if (!parameters.length) return false;
    const names = parameters.map(({ name, dtype, shape }) => `${name} ${dtype} [${shape.join(", ")}]`).join(", ");
    const digest = line("parameters", this.address.get("t.parameters", own), (text) => this.#set("parameters", text.trim() && text.trim() !== own ? text.trim() : null), { size: 24 });
    digest.title = "The digest of values that a client has put, or of those of the page";
    const choices = [INPUTS, ALL, ...this.#differentiable.map(({ name }) => name)];
    return make(
      "div",
      { class: "fields" },
      digest,
      WITH_RESPECT_TO.includes(this.operation) && choice("with respect to", choices, this.#wrt, (name) => this.#set("wrt", name === INPUTS ? null : name)),
      make("span", { class: "muted small" }, names),
    );
  }

  /** Return the fields of a request that are about parameters. */
  #ofParameters() {
    const every = [...this.contract.inputs.filter((slot) => slot.differentiable), ...this.#differentiable].map(({ name }) => name);
    const digest = this.address.get("t.parameters");
    const isOther = WITH_RESPECT_TO.includes(this.operation) && this.#wrt !== INPUTS;
    return { ...(digest ? { parameters: digest } : {}), ...(isOther ? { wrt: this.#wrt === ALL ? every : [this.#wrt] } : {}) };
  }

  get #differentiable() {
    return (this.contract.parameters ?? []).filter(({ differentiable }) => differentiable !== false);
  }

  get #wrt() {
    return this.address.get("t.wrt", INPUTS);
  }

  get #order() {
    return this.address.get("t.order", this.operation === "gradients" ? "2" : "1");
  }

  get #digits() {
    return this.operation !== "numeric" && this.address.get("t.digits") === "1" ? { digits: true } : {};
  }

  /** @param {string} operation */
  #has(operation) {
    const { claim } = this.contract;
    if (operation === "forward") return true;
    if (!claim) return false;
    if (operation === "jvp") return claim.linear;
    return claim.second !== null || !["hvp", "hessian"].includes(operation);
  }

  /**
   * @param {string} field
   * @param {import("./types.d.ts").Slot} slot
   * @param {unknown} byDefault
   * @param {string} [ones] what an empty field stands for
   */
  #tensor(field, slot, byDefault, ones = "") {
    const name = `t.${field}.${slot.name}`;
    const standard = byDefault === undefined ? "" : jsonOf(byDefault);
    const value = this.address.get(name, standard);
    const area = make("textarea", { rows: Math.min(6, 1 + Math.floor(value.length / 70)), spellcheck: "false", placeholder: ones });
    area.value = value;
    area.addEventListener("change", () => this.#set(name.slice(2), area.value === standard ? null : area.value));
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.form.requestSubmit();
    });
    const shape = `[${slot.shape.join(", ")}]`;
    const label = field !== "inputs" ? `${field} of ${slot.name}` : slot.optional ? `${slot.name} (optional)` : slot.name;
    return make("label", { class: "field wide" }, make("span", {}, label, " ", make("span", { class: "muted" }, shape, slot.doc && ` – ${slot.doc}`)), area);
  }

  /**
   * @param {string} name
   * @param {string | null} text
   */
  #set(name, text) {
    this.address.set({ [`t.${name}`]: text });
    this.#changed();
  }

  /** The answer does not belong to the fields any more. */
  #changed() {
    this.answer.classList.add("stale");
    this.#snippets();
  }

  /** @param {string} name */
  #take(name) {
    this.address.clear("t.");
    this.settings.take(name);
    this.#draw();
  }

  /** Return the body of the request; raises an error for a text that is not JSON. */
  #body() {
    const { contract, example, settings } = this;
    /** @type {Record<string, unknown>} */
    const inputs = {};
    for (const { name, optional } of contract.inputs) {
      const text = this.address.get(`t.inputs.${name}`, name in (example?.inputs ?? {}) ? jsonOf(example?.inputs[name]) : "");
      if (text.trim() || !optional) inputs[name] = json(`inputs.${name}`, text);
    }
    /** @type {Record<string, unknown>} */
    const body = { inputs, ...this.#digits };
    for (const { of, field, isRequired } of OPERATIONS[this.operation] ?? []) {
      /** @type {Record<string, unknown>} */
      const given = {};
      for (const { name } of contract[of].filter((slot) => slot.differentiable)) {
        const text = this.address.get(`t.${field}.${name}`);
        if (text.trim()) given[name] = json(`${field}.${name}`, text);
        else if (isRequired && name in inputs) given[name] = onesLike(inputs[name]);
      }
      if (Object.keys(given).length) body[field] = given;
    }
    if (contract.parameters?.length) Object.assign(body, this.#ofParameters());
    if (ORDERED.includes(this.operation)) body["order"] = Number(this.#order);
    if (Object.keys(settings.attrs).length) body["attrs"] = settings.attrs;
    body["dtype"] = settings.dtype;
    if (settings.mode) body["mode"] = settings.mode;
    return body;
  }

  #snippets() {
    let lines;
    try {
      const body = /** @type {Record<string, any>} */ (this.#body());
      lines = snippets({ op: this.contract.name, operation: this.operation, body }, this.contract, location.origin);
    } catch (error) {
      // A page that gets shorter scrolls, and the button would move away below the pointer that presses it.
      this.code.style.minHeight = `${this.code.offsetHeight}px`;
      return fill(this.code, make("p", { class: "problem" }, inWords(error)));
    }
    this.code.style.minHeight = "";
    fill(
      this.code,
      make("h3", {}, "The same in other programs"),
      ...Object.entries(lines).map(([language, text]) => {
        const copy = make("button", { type: "button", class: "quiet copy" }, "Copy");
        copy.setAttribute("aria-label", `Copy the lines for ${language}`);
        copy.addEventListener("click", () => this.#copy(copy, text));
        return make("details", { class: "snippet", open: language === "curl" }, make("summary", {}, language), copy, make("pre", { class: "code", tabindex: "0" }, text));
      }),
    );
  }

  /**
   * @param {HTMLButtonElement} button
   * @param {string} text
   */
  async #copy(button, text) {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it to copy";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }
}
