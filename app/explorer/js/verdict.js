/** The section of the verdict: it checks the op, and fills its table as the findings come. */

import { fill, make } from "./dom.js";
import { placeOf } from "./fault.js";
import { lastCheck, SIGNS } from "./lastcheck.js";
import { number, short } from "./numbers.js";
import { Away, inWords, isAborted } from "./service.js";

/**
 * @typedef {object} Finding
 * @property {string} check
 * @property {string} verdict
 * @property {string} sentence
 * @property {number | null} order
 * @property {string | null} input
 * @property {Record<string, unknown>} attrs
 * @property {string} mode
 * @property {string} dtype
 * @property {{ index: number[] | null, x: unknown, analytic: unknown, numeric: unknown, error_bar: unknown } | null} worst
 * @property {string | null} reproduce
 * @property {{ inputs: Record<string, unknown>, cotangents?: Record<string, unknown> } | null} point
 * @property {{ mode: string, dtype: string }[]} places
 */

const ORDER = Object.keys(SIGNS);

/** The verdict on an op. */
export class Verdict {
  /**
   * @param {import("./service.js").Service} service
   * @param {import("./types.d.ts").Contract} contract
   * @param {import("./settings.js").Settings} settings
   * @param {(finding: Finding) => void} showAt shows the plot around the point of a finding
   */
  constructor(service, contract, settings, showAt) {
    this.service = service;
    this.contract = contract;
    this.columns = [...settings.floats, ...contract.modes];
    this.showAt = showAt;
    this.running = new AbortController();
    this.button = make("button", { type: "button", class: "primary", onclick: () => this.check() }, "Check this op");
    this.cancel = make("button", { type: "button", hidden: true, onclick: () => this.running.abort() }, "Cancel");
    this.bar = make("progress", { max: 1, value: 0, hidden: true, "aria-label": "Progress of the check" });
    this.state = make("p", { role: "status", class: "verdict-line" }, "A check takes seconds, of a large op minutes.");
    this.setting = make("p", { class: "muted" });
    this.table = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table of checks", hidden: true });
    this.list = make("div", { class: "findings" });
    this.root = make("div", {}, make("div", { class: "fields" }, this.button, this.cancel, this.bar), this.state, this.setting, this.table, this.list);
    /** @type {Finding[]} */
    this.findings = [];
    this.current = "";
    this.isLost = this.hasBegun = false;
    service.addEventListener("back", () => this.#back());
    // Without it, the line says what a check is.
    this.#readLast().catch(() => {});
  }

  /** Show the last verdict on the op, unless a check has begun since. */
  async #readLast() {
    const { ops } = /** @type {{ ops: import("./types.d.ts").ListedOp[] }} */ (await this.service.get("/v1/ops"));
    const own = ops.find((op) => op.name === this.contract.name);
    if (own?.last_check && !this.hasBegun) fill(this.state, "Last check: ", ...lastCheck(own.last_check));
  }

  /** Check the op, and show what is found. */
  async check() {
    const running = (this.running = new AbortController());
    this.findings = [];
    this.isLost = false;
    this.hasBegun = true;
    this.#busy(true);
    this.#say("The check has begun.", "");
    this.setting.textContent = "";
    this.#draw();
    try {
      const body = { ops: [this.contract.name], findings: true };
      for await (const event of this.service.lines("/v1/checks", body, running.signal)) this.#take(event);
    } catch (error) {
      this.isLost = error instanceof Away;
      const text = isAborted(error) ? `Cancelled after ${this.findings.length} findings.` : inWords(error);
      this.#say(text, isAborted(error) ? "" : "fail");
    } finally {
      this.current = "";
      this.#busy(false);
      this.#draw();
    }
  }

  /** Say that the check that an outage has ended can be run again: the service may have stopped because of it. */
  #back() {
    if (!this.isLost) return;
    this.isLost = false;
    this.#say(`The service answers again. It stopped after ${this.findings.length} findings: check the op again.`, "");
  }

  /** @param {any} event */
  #take(event) {
    if (event.event === "progress") {
      this.current = event.check;
      this.bar.max = event.steps;
      this.bar.value = event.done;
      const left = event.left_s === null ? "" : `, about ${Math.ceil(event.left_s)} s left`;
      this.#say(`Checking ${event.check}: ${event.done} of ${event.steps} steps${left}`, "");
    } else if (event.event === "finding") {
      this.findings.push(event.finding);
    } else if (event.event === "report") {
      this.findings = event.report.checks;
      this.setting.textContent = settingOf(event.report);
      this.#say(`${event.report.verdict.toUpperCase()} – ${event.report.sentence}`, event.report.verdict);
    } else if (event.event === "error") {
      this.#say(event.problem.detail, "fail");
    } else return;
    this.#draw();
  }

  /** @param {boolean} isBusy */
  #busy(isBusy) {
    this.button.disabled = isBusy;
    this.cancel.hidden = !isBusy;
    this.bar.hidden = !isBusy;
    if (isBusy) this.bar.removeAttribute("value");
  }

  /**
   * @param {string} text
   * @param {string} verdict
   */
  #say(text, verdict) {
    this.state.className = `verdict-line ${verdict}`;
    this.state.textContent = text;
  }

  #draw() {
    const checks = [...new Set(this.findings.map((finding) => finding.check))];
    if (this.current && !checks.includes(this.current)) checks.push(this.current);
    this.table.hidden = !checks.length;
    const heads = this.columns.map((column) => make("th", { scope: "col" }, column));
    const rows = checks.map((check) => {
      const own = this.findings.filter((finding) => finding.check === check);
      const cells = this.columns.map((column) => cell(own, column));
      const name = make("th", { scope: "row" }, check);
      return make("tr", check === this.current ? { class: "running", "aria-busy": "true" } : {}, name, cell(own, ""), cells);
    });
    const head = make("tr", {}, make("th", { scope: "col" }, "check"), make("th", { scope: "col" }, "verdict"), heads);
    fill(this.table, make("table", { class: "checks" }, make("thead", {}, head), make("tbody", {}, rows)));
    const shown = this.findings.filter((finding) => finding.verdict !== "pass");
    const sorted = shown.toSorted((a, b) => ORDER.indexOf(b.verdict) - ORDER.indexOf(a.verdict));
    fill(this.list, ...sorted.map((finding) => this.#finding(finding)));
  }

  /** @param {Finding} finding */
  #finding(finding) {
    const { worst } = finding;
    const label = `${SIGNS[finding.verdict]} ${finding.check}`;
    return make(
      "details",
      { class: `finding ${finding.verdict}`, open: finding.verdict === "fail" },
      make("summary", {}, make("span", { class: `badge ${finding.verdict}` }, label), " ", finding.sentence),
      worst &&
        make(
          "p",
          { class: "numbers" },
          `${placeOf(worst)}the op's ${short(number(worst.analytic), 9)}, expected ${short(number(worst.numeric), 9)} ± ${short(number(worst.error_bar), 2)}`,
        ),
      finding.point && make("button", { type: "button", class: "quiet", onclick: () => this.showAt(finding) }, "Show it in the plot"),
      finding.reproduce && make("pre", { class: "code", tabindex: "0" }, finding.reproduce),
    );
  }
}

/**
 * Return what an op was checked with.
 *
 * @param {{ origin: Record<string, string>, modes: string[], devices: string[], seed: number }} report
 */
function settingOf({ origin, modes, devices, seed }) {
  const page = origin.page ? [`page ${origin.page.slice(0, 12)}`] : [];
  const versions = `Pullback ${origin.version}, TensorFlow ${origin.tensorflow}`;
  return [...page, versions, `modes ${modes.join(", ")}`, ...devices, `seed ${seed}`].join(", ");
}

/**
 * Return the cell of the findings that hold for a dtype or a mode, or for all.
 *
 * @param {Finding[]} findings
 * @param {string} column
 * @returns {HTMLElement}
 */
function cell(findings, column) {
  const own = column
    ? findings.filter((finding) => finding.places.some((place) => place.dtype === column || place.mode === column))
    : findings;
  const worst = own.map((finding) => finding.verdict).reduce((a, b) => (ORDER.indexOf(b) > ORDER.indexOf(a) ? b : a), "");
  if (!worst) return make("td", {}, "");
  return make("td", {}, make("span", { class: `badge ${worst}`, title: own[0]?.sentence }, SIGNS[worst], column ? make("span", { class: "hidden" }, worst) : ` ${worst}`));
}
