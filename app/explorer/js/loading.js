/** A file of the page that does not arrive: the page is read again, a few times, and then says so. */

"use strict";

(() => {
  const TRIES = 3;
  const AGAIN_MS = 1000;
  const KEY = "pullback.reads";

  /** @param {number} [reads] how often this tab has read the page in vain; without, the count so far is returned */
  function count(reads) {
    try {
      if (reads !== undefined) sessionStorage.setItem(KEY, String(reads));
      return Number(sessionStorage.getItem(KEY));
    } catch {
      // A browser that keeps nothing does not read again.
      return TRIES;
    }
  }

  /** Read the page again once the service answers: without it, a browser shows an error for good. */
  const readAgain = () => {
    fetch("/health/live", { cache: "no-store" }).then(
      () => location.reload(),
      () => setTimeout(readAgain, AGAIN_MS),
    );
  };

  let isLost = false;
  // The event of an element does not bubble. A module that is missing is an error of the script that imports it.
  const lose = (/** @type {Event} */ { target }) => {
    if (isLost || !(target instanceof HTMLScriptElement)) return;
    isLost = true;
    const reads = count() + 1;
    if (reads < TRIES) {
      count(reads);
      setTimeout(readAgain, AGAIN_MS);
      return;
    }
    count(0);
    const say = () => {
      const note = document.createElement("p");
      note.className = "problem";
      note.setAttribute("role", "alert");
      note.textContent = `A file of this page did not arrive (${target.src}). Reload the page to try again.`;
      document.querySelector("#main")?.before(note);
      document.querySelector("#main > .muted")?.remove();
    };
    if (document.readyState === "loading") addEventListener("DOMContentLoaded", say);
    else say();
  };
  addEventListener("error", lose, true);
  addEventListener("load", () => isLost || count(0));
})();
