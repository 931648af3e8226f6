// Reads the page again when the server says that something has changed. Without it the page is the same, but not live.
"use strict";

(() => {
  const RENEW_MILLISECONDS = 2000;
  const LOST_MILLISECONDS = 5000;
  const main = document.getElementById("content");
  const live = document.getElementById("live");
  const state = document.getElementById("live-state");
  const toggle = document.getElementById("live-toggle");
  let handled = document.body.dataset.version;
  let latest = handled;
  let paused = false;
  let reading = false;
  let lost = 0;
  let told = false;
  let renewed = Date.now();

  function say(text, failed = false) {
    if (state.textContent !== text) state.textContent = text;
    live.classList.toggle("failed", failed);
  }

  // A plot of the same address stays, so that it does not flicker; an open part stays open.
  function carryOver(fresh) {
    const plots = new Map([...main.querySelectorAll("picture")].map((each) => [each.lastElementChild.src, each]));
    for (const picture of fresh.querySelectorAll("picture")) {
      const same = plots.get(new URL(picture.lastElementChild.getAttribute("src"), location.href).href);
      if (same) picture.replaceWith(same);
    }
    for (const part of main.querySelectorAll("details[open]")) {
      const same = fresh.querySelector(`#${CSS.escape(part.id)}`);
      if (same) same.open = true;
    }
  }

  // Where the reader is: the focused element and what is scrolled sideways.
  function place() {
    const alike = () => [...main.querySelectorAll("a, button, [tabindex], summary")];
    const focused = document.activeElement;
    const index = alike().indexOf(focused);
    const address = index < 0 ? null : focused.getAttribute("href");
    const scrolled = [...main.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    return () => {
      main.querySelectorAll(".scroll").forEach((each, number) => { each.scrollLeft = scrolled[number] || 0; });
      const now = alike();
      const found = (address && now.find((each) => each.getAttribute("href") === address)) || now[index];
      if (found) found.focus({ preventScroll: true });
    };
  }

  // What is in no version, as the GPUs of a cluster, is read again after a time.
  function isDue() {
    return latest !== handled || Date.now() - renewed >= 1000 * Number(document.body.dataset.renewSeconds || Infinity);
  }

  async function renew() {
    if (reading || paused || !isDue() || document.hidden) return;
    if (main.contains(document.activeElement) && document.activeElement.tagName === "INPUT") return;
    reading = true;
    renewed = Date.now();
    const version = latest;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("content");
      const restore = place();
      carryOver(fresh);
      main.replaceChildren(...fresh.childNodes);
      restore();
      document.title = page.title;
      // After an error of the server, or if what it shows is old, the page is read again, although the version stays.
      // What is not found has no version, and is not found until something changes.
      const isGone = answer.status === 404;
      if (answer.ok) handled = page.body.dataset.version && version;
      else if (isGone) handled = version;
      const isRead = answer.ok || isGone;
      say(isRead ? "live" : "the page cannot be read", !isRead);
    } catch {
      say("not connected; what is shown may be old", true);
    } finally {
      reading = false;
    }
  }

  function listen() {
    const source = new EventSource("/events");
    const found = () => { clearTimeout(lost); lost = 0; };
    source.addEventListener("version", (event) => {
      found();
      told = false;
      latest = JSON.parse(event.data);
      if (!paused) say("live");
    });
    source.addEventListener("failure", (event) => { found(); told = true; say(JSON.parse(event.data), true); });
    source.addEventListener("error", () => {
      // The server ends each stream after a while, and the browser opens the next one by itself.
      // If it has said why it gives none now, that stays.
      if (!lost && !told) lost = setTimeout(() => say("not connected; what is shown may be old", true), LOST_MILLISECONDS);
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, LOST_MILLISECONDS);
    });
  }

  toggle.addEventListener("click", () => {
    paused = !paused;
    toggle.setAttribute("aria-pressed", String(paused));
    say(paused ? "paused" : "live");
    renew();
  });
  document.addEventListener("visibilitychange", renew);
  setInterval(renew, RENEW_MILLISECONDS);
  live.hidden = false;
  listen();
})();
