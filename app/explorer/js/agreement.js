/** Whether a derivative agrees with the numeric one, and with what it claims to be. */

/** @typedef {import("./types.d.ts").Level} Level */
/** @typedef {"right" | "declared" | "wrong" | "unknown"} State */

/**
 * Return a level without numbers but the analytic ones.
 *
 * @param {string} name
 * @param {string} of
 * @param {import("./types.d.ts").ClaimKind} kind
 * @param {import("./types.d.ts").Column} analytic
 * @returns {Level}
 */
export function levelOf(name, of, kind, analytic) {
  const none = () => analytic.map(() => /** @type {number | null} */ (null));
  const unknown = () => analytic.map(() => "");
  const own = { numeric: none(), bar: none(), status: unknown() };
  return { name, of, kind, analytic, ...own, claim: none(), claimBar: none(), claimStatus: unknown() };
}

/**
 * Return the state of a derivative at a point of its curve.
 *
 * `wrong` is not what it claims to be. `declared` is, but is not the derivative. `unknown`: one of the two numbers
 * cannot be determined there.
 *
 * @param {Level} level
 * @param {number} i
 * @returns {State}
 */
export function stateAt(level, i) {
  const own = within(level.analytic[i], level.numeric[i], level.bar[i], level.status[i]);
  if (level.kind === "derivative") return own === null ? "unknown" : own ? "right" : "wrong";
  const claimed = within(level.analytic[i], level.claim[i], level.claimBar[i], level.claimStatus[i]);
  if (claimed === null) return "unknown";
  if (!claimed) return "wrong";
  return own === false ? "declared" : own === true ? "right" : "unknown";
}

/**
 * Return the difference from the numeric derivative in error bars, `null` where there is none.
 *
 * @param {Level} level
 * @param {number} i
 * @returns {number | null}
 */
export function bars(level, i) {
  return inBars(level.analytic[i], level.numeric[i], level.bar[i]);
}

/**
 * Return the difference from the claim in error bars, `null` where there is none.
 *
 * @param {Level} level
 * @param {number} i
 * @returns {number | null}
 */
export function barsOfClaim(level, i) {
  return inBars(level.analytic[i], level.claim[i], level.claimBar[i]);
}

/**
 * Return a sentence on a whole level, and its worst state.
 *
 * @param {Level} level
 * @returns {{ state: State, sentence: string }}
 */
export function verdictOn(level) {
  const states = level.analytic.map((_, i) => stateAt(level, i));
  /** @param {State} state */
  const count = (state) => states.filter((each) => each === state).length;
  const compared = states.length - count("unknown");
  if (!compared) return { state: "unknown", sentence: "" };
  if (count("wrong")) {
    const claimed = level.kind === "derivative" ? `the numeric derivative of ${level.of}` : `its ${level.kind}`;
    return { state: "wrong", sentence: `wrong: differs from ${claimed} at ${count("wrong")} of ${compared} points` };
  }
  if (count("declared")) {
    return { state: "declared", sentence: `as declared by its ${level.kind}: not the derivative of ${level.of}` };
  }
  return { state: "right", sentence: `agrees with the numeric derivative of ${level.of} at ${compared} points` };
}

/**
 * @param {number | null | undefined} analytic
 * @param {number | null | undefined} expected
 * @param {number | null | undefined} bar
 * @param {string | undefined} status
 * @returns {boolean | null}
 */
function within(analytic, expected, bar, status) {
  if (status !== "ok" || expected === null || expected === undefined || bar === null || bar === undefined) return null;
  if (analytic === null || analytic === undefined) return null;
  return Math.abs(analytic - expected) <= bar;
}

/**
 * @param {number | null | undefined} analytic
 * @param {number | null | undefined} expected
 * @param {number | null | undefined} bar
 * @returns {number | null}
 */
function inBars(analytic, expected, bar) {
  if ([analytic, expected, bar].some((each) => each === null || each === undefined)) return null;
  const apart = Number(analytic) - Number(expected);
  return apart === 0 ? 0 : apart / Math.max(Number(bar), Number.MIN_VALUE);
}
