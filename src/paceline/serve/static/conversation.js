/**
 * The conversation as it is shown: a list of messages that follows its own end while the reader is there.
 */

import { render } from "./markdown.js";

/** @typedef {import("./api.js").Timings} Timings */
/** @typedef {import("./api.js").Usage} Usage */

export class Conversation {
  /** @param {HTMLElement} list @param {HTMLElement} scroller @param {HTMLElement} welcome */
  constructor(list, scroller, welcome) {
    this.list = list;
    this.scroller = scroller;
    this.welcome = welcome;
  }

  /** Show nothing but the welcome. */
  clear() {
    this.list.replaceChildren();
    this.welcome.hidden = false;
  }

  /**
   * @param {string} text
   * @returns {HTMLElement} the message on the page
   */
  addUser(text) {
    const item = this.#add("user");
    item.textContent = text;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    return item;
  }

  /**
   * An answer that will grow.
   * @returns {Answer}
   */
  addAnswer() {
    return new Answer(this.#add("assistant"), this.scroller);
  }

  /**
   * @param {"user" | "assistant"} role
   * @returns {HTMLElement}
   */
  #add(role) {
    this.welcome.hidden = true;
    const item = document.createElement("li");
    item.className = `message ${role}`;
    this.list.append(item);
    return item;
  }
}

/** One growing answer. It is drawn at most once a frame, however fast the tokens come. */
export class Answer {
  /** @param {HTMLElement} item @param {HTMLElement} scroller */
  constructor(item, scroller) {
    this.item = item;
    this.scroller = scroller;
    this.text = "";
    this.frame = 0;
    this.body = document.createElement("div");
    this.body.className = "text";
    item.setAttribute("aria-busy", "true");
    item.append(this.body);
  }

  /** @param {string} text */
  append(text) {
    this.text += text;
    this.frame ||= requestAnimationFrame(() => this.#draw());
  }

  /**
   * The answer is over; `note` is shown under it.
   * @param {string} note
   */
  finish(note) {
    cancelAnimationFrame(this.frame);
    const line = document.createElement("p");
    line.className = "pace";
    line.textContent = note;
    this.item.setAttribute("aria-busy", "false");
    this.item.append(line);
    this.#draw();
  }

  /** Take the answer away: it never began. */
  remove() {
    cancelAnimationFrame(this.frame);
    this.item.remove();
  }

  #draw() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    const wasAtEnd = scrollTop + clientHeight >= scrollHeight - 80;
    this.frame = 0;
    this.body.replaceChildren(render(this.text));
    if (wasAtEnd) this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}

/**
 * What a finished answer says about its pace.
 * @param {Timings | null} timings
 * @param {Usage | null} usage
 * @param {string | null} finishReason
 * @returns {string}
 */
export function paceNote(timings, usage, finishReason) {
  const notes = [];
  if (usage) notes.push(usage.completion_tokens === 1 ? "1 token" : `${usage.completion_tokens} tokens`);
  if (timings?.ttft_ms != null) notes.push(`first after ${Math.round(timings.ttft_ms)} ms`);
  if (timings?.tpot_ms) notes.push(`${(1000 / timings.tpot_ms).toFixed(1)} tok/s`);
  if (timings?.cached_tokens) notes.push(`${timings.cached_tokens} prompt tokens from cache`);
  if (finishReason === "length") notes.push("cut off at the limit of tokens");
  else if (finishReason !== null && finishReason !== "stop") notes.push(`ended: ${finishReason}`);
  return notes.join(" · ");
}
