/** The section of the plot: its controls, its keys, and the numbers at the cursor. */

import { drawCurve, firstRange, hasCurve } from "./curve.js";
import { choice, fill, line, make } from "./dom.js";
import { LineFields } from "./linefields.js";
import { number, short } from "./numbers.js";
import { Panels } from "./panels.js";
import { readOut, spoken } from "./readout.js";
import { inWords, isAborted } from "./service.js";
import { drawSlice } from "./slice.js";

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
    this.settling = 0;
    this.canvas = make("div", { class: "panels", tabindex: "0", role: "group", "aria-label": `Plot. ${KEYS}` });
    this.panels = new Panels(this.canvas, {
      moved: (i) => this.#read(i),
      zoomed: (from, to) => this.#range(from, to),
    });
    this.readout = make("div", { class: "readout-place", tabindex: "0", role: "group", "aria-label": "Numbers at the cursor" });
    this.said = make("p", { class: "hidden", role: "status" });
    this.message = make("p", { class: "problem", role: "alert", hidden: true });
    this.controls = make("div", { class: "fields", role: "group", "aria-label": "Range and scale" });
    this.root = make("div", {}, this.line?.root, this.controls, this.message, this.#legend(), this.canvas, this.readout, this.said, make("p", { class: "muted small" }, `Drag or turn the wheel to zoom; ${KEYS.toLowerCase()}`));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.canvas.addEventListener("dblclick", () => this.#reset());
    settings.addEventListener("change", () => this.draw());
    this.#control();
  }

  get from() {
    return Number(this.address.get("from", String(this.#whole[0])));
  }

  get to() {
    return Number(this.address.get("to", String(this.#whole[1])));
  }

  /** The range that is shown first. */
  get #whole() {
    if (this.line) return this.line.reach;
    return firstRange(this.contract);
  }

  /** Compute and show the curve. */
  async draw() {
    this.running.abort();
    const running = (this.running = new AbortController());
    this.canvas.setAttribute("aria-busy", "true");
    const show = (/** @type {Curve} */ curve) => {
      if (!running.signal.aborted) this.#show(curve);
    };
    try {
      const { dtype, mode, attrs } = this.settings;
      const span = { from: this.from, to: this.to, dtype, mode, attrs };
      if (this.line) await drawSlice(this.service, this.contract, { ...span, ...this.line.value }, running.signal, show);
      else {
        const cotangent = Number(this.address.get("c", "1"));
        await drawCurve(this.service, this.contract, { ...span, cotangent }, running.signal, show);
      }
      this.#tell("");
      this.canvas.dataset["drawn"] = String(Number(this.canvas.dataset["drawn"] ?? 0) + 1);
    } catch (error) {
      if (!isAborted(error)) this.#tell(inWords(error));
    } finally {
      if (running === this.running) this.canvas.removeAttribute("aria-busy");
    }
  }

  /**
   * Show the plot around the point of a finding: the curve there, or the line through it along the number at fault.
   *
   * @param {import("./verdict.js").Finding} finding
   */
  focus(finding) {
    this.settings.use(finding);
    const x = number(finding.worst?.x ?? 0) || 0;
    this.line?.pass(finding);
    const reach = Math.max(Math.abs(x) / 4, (this.#whole[1] - this.#whole[0]) / 16);
    const middle = this.line ? 0 : x;
    this.#range(middle - reach, middle + reach);
    this.root.scrollIntoView({ block: "start" });
    this.canvas.focus({ preventScroll: true });
  }

  /** @param {Curve} curve */
  #show(curve) {
    this.curve = curve;
    const options = { scale: this.address.get("scale", "auto"), from: this.from, to: this.to, names: this.names };
    this.panels.show(curve, options);
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
    const decimal = { inputmode: "decimal", size: 7 };
    fill(
      this.controls,
      line(`${this.names.x} from`, short(this.from).replace("−", "-"), (text) => this.#range(Number(text), this.to), decimal),
      line("to", short(this.to).replace("−", "-"), (text) => this.#range(this.from, Number(text)), decimal),
      choice("scale", ["auto", "linear", "arcsinh"], this.address.get("scale", "auto"), (scale) => {
        this.address.set({ scale: scale === "auto" ? "" : scale });
        if (this.curve) this.#show(this.curve);
      }),
      this.isCurve && line("cotangent", this.address.get("c", "1"), (text) => {
        this.address.set({ c: text === "1" ? "" : text });
        this.draw();
      }, decimal),
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
   */
  #range(from, to) {
    if (!(from < to) || !Number.isFinite(to - from)) {
      this.#tell(`expected a range from a number to a larger one, got ${from} to ${to}`);
      return;
    }
    this.address.set({ from: String(Number(from.toPrecision(6))), to: String(Number(to.toPrecision(6))) });
    this.#control();
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.draw(), SETTLE_MS);
  }

  #reset() {
    this.address.set({ from: "", to: "" });
    this.#control();
    this.draw();
  }

  /**
   * Change the width of the range around the cursor.
   *
   * @param {number} factor
   */
  #zoom(factor) {
    const at = this.curve?.x[this.panels.cursor] ?? (this.from + this.to) / 2;
    this.#range(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  /** @param {number} share */
  #pan(share) {
    const step = share * (this.to - this.from);
    this.#range(this.from + step, this.to + step);
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
