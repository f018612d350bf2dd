/** The service: its API, its errors in its own words, its key, and whether it answers. */

import { jsonOf, parsed } from "./numbers.js";

/** @typedef {{ loc: (string | number)[], message: string, expected: string, got: string }} ProblemEntry */
/** @typedef {{ status: number, title: string, detail: string, errors: ProblemEntry[] }} Problem */

const LOOK_AGAIN_MS = 1000;
const LOOK_MS = 5000;
const KEY = "pullback.key";
// The statuses of a service that may answer the next request: of a time limit, of a full queue.
const PASSING = [408, 429, 503, 504];

/** An answer of the service that is an error. */
export class ServiceError extends Error {
  /** @param {Problem} problem */
  constructor(problem) {
    super(problem.detail || problem.title);
    this.problem = problem;
  }

  /** Whether the service may answer another request of the kind, because it was busy. */
  get mayPass() {
    return PASSING.includes(this.problem.status);
  }

  /** The error and its first entry, in the words of the service. */
  get text() {
    const [first] = this.problem.errors ?? [];
    return first ? `${this.message} (expected ${first.expected}, got ${first.got})` : this.message;
  }
}

/** The service does not answer. */
export class Away extends Error {
  constructor() {
    super("the service does not answer");
  }
}

/** @returns {string} the key that this tab has, if the browser keeps any */
function stored() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

/** @param {string} key */
function store(key) {
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // A browser that keeps nothing asks again in each page.
  }
}

/**
 * The API. The event `away` says that the service does not answer, `back` that it does again, and `locked` that it needs
 * a key: requests wait until `unlock` gives one.
 */
export class Service extends EventTarget {
  /** The key, which the browser keeps for this tab until it is closed. */
  #key = stored();
  /** @type {Promise<void> | null} */
  #unlocked = null;
  #open = () => {};
  #isAway = false;

  /** Whether the last request got no answer. */
  get isAway() {
    return this.#isAway;
  }

  /** Look from time to time whether the service answers. */
  watch() {
    const look = async () => {
      if (!document.hidden || this.#isAway) await this.#look();
      setTimeout(look, this.#isAway ? LOOK_AGAIN_MS : LOOK_MS);
    };
    setTimeout(look, LOOK_MS);
  }

  /**
   * Go on with the requests that wait for a key.
   *
   * @param {string} key
   */
  unlock(key) {
    this.#key = key;
    store(key);
    this.#unlocked = null;
    this.#open();
  }

  /**
   * Return the document at a path.
   *
   * @param {string} path
   * @param {AbortSignal} [signal]
   * @returns {Promise<any>}
   */
  async get(path, signal) {
    return JSON.parse(await this.#read(path, { signal: signal ?? null }));
  }

  /**
   * Return the text at a path.
   *
   * @param {string} path
   * @returns {Promise<string>}
   */
  async text(path) {
    return this.#read(path, {});
  }

  /**
   * Return the answer to a document.
   *
   * @param {string} path
   * @param {unknown} body
   * @param {AbortSignal} [signal]
   * @returns {Promise<any>}
   */
  async post(path, body, signal) {
    return parsed(await this.#read(path, this.#request(body, "application/json", signal)));
  }

  /**
   * Yield the documents of a stream, one a line.
   *
   * @param {string} path
   * @param {unknown} body
   * @param {AbortSignal} signal
   * @returns {AsyncGenerator<any>}
   */
  async *lines(path, body, signal) {
    const response = await this.#send(path, this.#request(body, "application/x-ndjson", signal));
    if (!response.body) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read().catch((error) => this.#lose(error, signal));
      const lines = (text + (value ?? "")).split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) if (line) yield JSON.parse(line);
      if (done) return;
    }
  }

  /**
   * @param {unknown} body
   * @param {string} accept
   * @param {AbortSignal} [signal]
   * @returns {RequestInit}
   */
  #request(body, accept, signal) {
    const headers = { "Content-Type": "application/json", Accept: accept };
    return { method: "POST", headers, body: jsonOf(body), signal: signal ?? null };
  }

  /**
   * @param {string} path
   * @param {RequestInit} options
   * @returns {Promise<string>}
   */
  async #read(path, options) {
    const response = await this.#send(path, options);
    return response.text().catch((error) => this.#lose(error, options.signal));
  }

  /**
   * Raise the error of a request that its sender has aborted; others say that the service does not answer.
   *
   * @param {unknown} error
   * @param {AbortSignal | null | undefined} signal
   * @returns {never}
   */
  #lose(error, signal) {
    if (signal?.aborted) throw error;
    this.#leave();
    throw new Away();
  }

  /**
   * @param {string} path
   * @param {RequestInit} options
   * @returns {Promise<Response>}
   */
  async #send(path, options) {
    for (;;) {
      await this.#unlocked;
      const key = this.#key;
      const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
      // The password or the cookie of a proxy is sent too.
      const response = await fetch(path, { ...options, headers, credentials: "same-origin" }).catch((error) => this.#lose(error, options.signal));
      if (response.ok) {
        this.#return();
        return response;
      }
      const problem = await response.json().catch(() => ({ status: response.status, title: response.statusText, errors: [] }));
      if (response.status !== 401) throw new ServiceError(problem);
      if (key === this.#key) this.#lock(key ? problem.detail : "");
    }
  }

  /** @param {string} reason */
  #lock(reason) {
    if (this.#unlocked) return;
    this.#unlocked = new Promise((resolve) => {
      this.#open = resolve;
    });
    this.dispatchEvent(new CustomEvent("locked", { detail: reason }));
  }

  async #look() {
    try {
      await fetch("/health/live", { cache: "no-store" });
      this.#return();
    } catch {
      this.#leave();
    }
  }

  #leave() {
    if (this.#isAway) return;
    this.#isAway = true;
    this.dispatchEvent(new Event("away"));
    setTimeout(() => this.#waitForReturn(), LOOK_AGAIN_MS);
  }

  async #waitForReturn() {
    await this.#look();
    if (this.#isAway) setTimeout(() => this.#waitForReturn(), LOOK_AGAIN_MS);
  }

  #return() {
    if (!this.#isAway) return;
    this.#isAway = false;
    this.dispatchEvent(new Event("back"));
  }
}

/**
 * Return an error in words for a person.
 *
 * @param {unknown} error
 * @returns {string}
 */
export function inWords(error) {
  if (error instanceof ServiceError) return error.text;
  return error instanceof Error ? error.message : String(error);
}

/**
 * Return whether an error only says that the request was aborted.
 *
 * @param {unknown} error
 * @returns {boolean}
 */
export function isAborted(error) {
  return error instanceof DOMException && error.name === "AbortError";
}
