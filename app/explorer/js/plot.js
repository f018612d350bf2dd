/** The section of the plot: its controls, its keys, and the numbers at the cursor. */

import { drawCurve, firstRange, hasCurve } from "./curve.js";
import { choice, fill, line, make } from "./dom.js";
import { decimal } from "./entered.js";
import { cotangentOf } from "./fault.js";
import { LineFields } from "./linefields.js";
import { number } from "./numbers.js";
import { Panels } from "./panels.js";
import { rounded, spanOf } from "./range.js";
import { readOut, spoken } from "./readout.js";
import { AGAIN, Recovery } from "./recovery.js";
import { inWords, isAborted } from "./service.js";
import { drawSlice } from "./slice.js";
import { Touch } from "./touch.js";

/** @typedef {import("./types.d.ts").Contract} Contract */
/** @typedef {import("./types.d.ts").Curve} Curve */

const ZOOM = 1.6;
const PAN = 0.25;
const STEP = 4;
const SETTLE_MS = 120;
const KEYS = "Left and right move the cursor, plus and minus zoom, Shift with left and right moves the range, 0 resets it.";

/** The plot of an op. */
export class Plot {
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
    this.isCurve = hasCurve(contract);
    this.line = this.isCurve ? null : new LineFields(contract, settings, () => this.draw());
    this.names = this.isCurve
      ? { x: contract.inputs[0]?.name ?? "x", y: contract.outputs[0]?.name ?? "y" }
      : { x: "t", y: "φ(t) = ⟨c, f(x₀ + t v)⟩" };
    /** @type {Curve | null} */
    this.curve = null;
    this.running = new AbortController();
    this.recovery = new Recovery(service, () => this.#draw(), () => this.#tell(AGAIN));
    this.settling = 0;
    this.canvas = make("div", { class: "panels", tabindex: "0", role: "group", "aria-label": `Plot. ${KEYS}` });
    this.panels = new Panels(this.canvas, {
      moved: (i) => this.#read(i),
      zoomed: (from, to) => this.#range(from, to),
    });
    new Touch(this.canvas, {
      range: () => this.#nearby,
      slid: (from, to) => this.panels.slide(from, to),
      ended: (from, to) => this.#range(from, to),
    });
    this.readout = make("div", { class: "readout-place", tabindex: "0", role: "group", "aria-label": "Numbers at the cursor" });
    this.said = make("p", { class: "hidden", role: "status" });
    this.message = make("p", { class: "problem", role: "alert", hidden: true });
    this.controls = make("div", { class: "fields", role: "group", "aria-label": "Range and scale" });
    this.root = make("div", {}, this.line?.root, this.controls, this.message, this.#legend(), this.canvas, this.readout, this.said, make("p", { class: "muted small" }, `Drag or turn the wheel to zoom; ${KEYS.toLowerCase()}`));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.canvas.addEventListener("dblclick", () => this.#reset());
    settings.addEventListener("change", () => {
      this.#control();
      this.draw();
    });
    this.#control();
  }

  /** The range as it was entered. */
  get #ends() {
    const [from, to] = this.#whole;
    return { from: this.address.get("from", String(from)), to: this.address.get("to", String(to)) };
  }

  /** The range; raises an error for texts that are none. */
  get #span() {
    return spanOf(this.#ends, this.names.x, this.settings.dtype);
  }

  /** The range, or that which is shown first where the texts are none. */
  get #nearby() {
    try {
      return this.#span;
    } catch {
      const [from, to] = this.#whole;
      return { from, to };
    }
  }

  /** The range that is shown first. */
  get #whole() {
    if (this.line) return this.line.reach;
    return firstRange(this.contract.inputs[0]);
  }

  /** Compute and show the curve, as a person asks for it. */
  async draw() {
    this.recovery.begin();
    await this.#draw();
  }

  async #draw() {
    this.running.abort();
    const running = (this.running = new AbortController());
    this.canvas.setAttribute("aria-busy", "true");
    this.#tell("");
    // Until the new curve is there, the old one does not belong to the fields.
    this.root.classList.add("stale");
    try {
      const { dtype, mode, attrs } = this.settings;
      const { from, to } = this.#span;
      const pin = this.address.get("pin");
      const span = { from, to, dtype, mode, attrs, pin: pin ? decimal("pin", pin) : null };
      const show = (/** @type {Curve} */ curve) => {
        if (!running.signal.aborted) this.#show(curve, span);
      };
      if (this.line) await drawSlice(this.service, this.contract, { ...span, ...this.line.value }, running.signal, show);
      else {
        const cotangent = decimal("cotangent", this.address.get("c", "1"));
        await drawCurve(this.service, this.contract, { ...span, cotangent }, running.signal, show);
      }
      this.recovery.end();
      this.canvas.dataset["drawn"] = String(Number(this.canvas.dataset["drawn"] ?? 0) + 1);
    } catch (error) {
      if (isAborted(error)) return;
      this.root.classList.add("stale");
      this.#tell(inWords(error));
      this.recovery.end(error);
    } finally {
      if (running === this.running) this.canvas.removeAttribute("aria-busy");
    }
  }

  /**
   * Show the plot around the point of a finding, with the cursor on it: the curve there, or the line through it along the
   * number at fault.
   *
   * @param {import("./verdict.js").Finding} finding
   */
  focus(finding) {
    this.address.step();
    this.settings.use(finding);
    const x = number(finding.worst?.x ?? 0) || 0;
    this.line?.pass(finding);
    const reach = Math.max(Math.abs(x) / 4, (this.#whole[1] - this.#whole[0]) / 16);
    const middle = this.line ? 0 : x;
    this.address.set({ pin: String(middle), ...(this.line ? {} : { c: cotangentOf(finding) }) });
    this.#range(middle - reach, middle + reach, false);
    this.root.scrollIntoView({ block: "start" });
    this.canvas.focus({ preventScroll: true });
  }

  /**
   * @param {Curve} curve
   * @param {{ from: number, to: number, pin: number | null }} span
   */
  #show(curve, { from, to, pin }) {
    this.curve = curve;
    this.root.classList.remove("stale");
    this.panels.show(curve, { scale: this.address.get("scale", "auto"), from, to, pin, names: this.names });
  }

  /** @param {string} text */
  #tell(text) {
    this.message.hidden = !text;
    this.message.textContent = text;
  }

  /** @param {number} i */
  #read(i) {
    if (this.curve) readOut(this.readout, this.curve, i, this.names);
  }

  #legend() {
    const { claim } = this.contract;
    const isClaimed = claim?.first !== "derivative" || (claim.second !== null && claim.second !== "derivative");
    const item = (/** @type {string} */ kind, /** @type {string} */ text) => make("li", {}, make("span", { class: `swatch ${kind}` }), text);
    return make(
      "ul",
      { class: "legend" },
      item("own", "the op's"),
      item("numeric", "numeric ± error bar"),
      isClaimed && item("claim", "what it claims to be"),
      item("tangent", "tangent at the cursor"),
    );
  }

  #control() {
    const properties = { inputmode: "decimal", size: 7 };
    const set = (/** @type {Record<string, string | null>} */ fields) => {
      this.address.step();
      this.address.set(fields);
      this.draw();
    };
    const { from, to } = this.#ends;
    fill(
      this.controls,
      line(`${this.names.x} from`, from, (text) => set({ from: text }), properties),
      line("to", to, (text) => set({ to: text }), properties),
      choice("scale", ["auto", "linear", "arcsinh"], this.address.get("scale", "auto"), (scale) => {
        this.address.set({ scale: scale === "auto" ? null : scale });
        this.panels.rescale(scale);
      }),
      this.isCurve && line("cotangent", this.address.get("c", "1"), (text) => set({ c: text === "1" ? null : text }), properties),
      make("button", { type: "button", class: "quiet", onclick: () => this.#zoom(1 / ZOOM) }, "Zoom in"),
      make("button", { type: "button", class: "quiet", onclick: () => this.#zoom(ZOOM) }, "Zoom out"),
      make("button", { type: "button", class: "quiet", onclick: () => this.#reset() }, "Reset"),
      this.isCurve && make("button", { type: "button", class: "quiet", onclick: () => this.#range(...(this.contract.inputs[0]?.domain ?? [-3, 3])) }, "Whole domain"),
    );
  }

  /**
   * Show another range, once it has stayed the same for a moment.
   *
   * @param {number} from
   * @param {number} to
   * @param {boolean} [isStep] whether the back button undoes it
   */
  #range(from, to, isStep = true) {
    // Several moves in a row are one step.
    if (isStep && !this.settling) this.address.step();
    this.address.set({ from: rounded(from, to - from), to: rounded(to, to - from) });
    this.#control();
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      this.settling = 0;
      this.draw();
    }, SETTLE_MS);
  }

  #reset() {
    this.address.step();
    this.address.set({ from: null, to: null, pin: null });
    this.#control();
    this.draw();
  }

  /**
   * Change the width of the range around the cursor.
   *
   * @param {number} factor
   */
  #zoom(factor) {
    const { from, to } = this.#nearby;
    const x = this.curve?.x[this.panels.cursor];
    const at = x !== undefined && x >= from && x <= to ? x : (from + to) / 2;
    this.#range(at - (at - from) * factor, at + (to - at) * factor);
  }

  /** @param {number} share */
  #pan(share) {
    const { from, to } = this.#nearby;
    const step = share * (to - from);
    this.#range(from + step, to + step);
  }

  /** @param {WheelEvent} event */
  #wheel(event) {
    if (event.deltaY === 0 || event.ctrlKey || document.activeElement !== this.canvas) return;
    event.preventDefault();
    this.#zoom(event.deltaY < 0 ? 1 / ZOOM : ZOOM);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const side = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const act = side
      ? () => (event.shiftKey ? this.#pan(side * PAN) : this.#step(side * STEP))
      : { "+": () => this.#zoom(1 / ZOOM), "=": () => this.#zoom(1 / ZOOM), "-": () => this.#zoom(ZOOM), 0: () => this.#reset() }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  /** @param {number} by */
  #step(by) {
    this.panels.moveTo(this.panels.cursor + by);
    if (this.curve) this.said.textContent = spoken(this.curve, this.panels.cursor, this.names);
  }
}
