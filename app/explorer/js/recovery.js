/** What a section does after an outage of the service. */

import { Away } from "./service.js";

export const AGAIN = "the service stopped answering twice, perhaps because of this request: try again";

/**
 * An act of a person that an outage may end. It is repeated once when the service is back, not again and again: the act
 * itself may have stopped the service.
 */
export class Recovery {
  #isLost = false;
  #isRepeated = false;

  /**
   * @param {import("./service.js").Service} service
   * @param {() => void} act repeats the act
   * @param {() => void} giveUp says that an outage has ended it again
   */
  constructor(service, act, giveUp) {
    this.service = service;
    this.act = act;
    this.giveUp = giveUp;
    service.addEventListener("back", () => this.#back());
  }

  /** A person begins the act. */
  begin() {
    this.#isLost = this.#isRepeated = false;
  }

  /**
   * Note how the act has ended.
   *
   * @param {unknown} [error]
   */
  end(error) {
    this.#isLost = error instanceof Away;
    // Another request may have found the service back before this one has ended.
    if (!this.service.isAway) this.#back();
  }

  #back() {
    if (!this.#isLost) return;
    this.#isLost = false;
    if (this.#isRepeated) return this.giveUp();
    this.#isRepeated = true;
    this.act();
  }
}
