/**
 * The page: a conversation with the served model.
 *
 * The one idea: the messages array is the whole state; what is on screen follows it. One answer runs at a time.
 */

import { modelName, streamAnswer } from "./api.js";
import { Conversation, paceNote } from "./conversation.js";

/** @typedef {import("./api.js").Message} Message */
/** @typedef {import("./api.js").Piece} Piece */
/** @typedef {import("./api.js").Settings} Settings */

/**
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
function element(id, type) {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`the page has no ${type.name} #${id}`);
  return found;
}

const page = {
  model: element("model", HTMLElement),
  problem: element("problem", HTMLElement),
  prompt: element("prompt", HTMLTextAreaElement),
  send: element("send", HTMLButtonElement),
  stop: element("stop", HTMLButtonElement),
  temperature: element("temperature", HTMLInputElement),
  maxTokens: element("max-tokens", HTMLInputElement),
  apiKey: element("api-key", HTMLInputElement),
  system: element("system", HTMLInputElement),
};
const scroller = document.querySelector("main");
if (!scroller) throw new Error("the page has no <main>");
const conversation = new Conversation(element("conversation", HTMLElement), scroller, element("welcome", HTMLElement));

/** @type {Message[]} */
let messages = [];
/** @type {AbortController | null} the answer that is running */
let running = null;
/** @type {string | null} the served model's name, once known */
let model = null;

/** @returns {Settings} */
function settings() {
  const number = (/** @type {HTMLInputElement} */ input) => (input.value.trim() === "" ? null : input.valueAsNumber);
  return { temperature: number(page.temperature), maxTokens: number(page.maxTokens), apiKey: page.apiKey.value };
}

/** @param {string | null} message */
function showProblem(message) {
  page.problem.textContent = message ?? "";
  page.problem.hidden = message === null;
}

/** @param {AbortController | null} controller */
function setRunning(controller) {
  running = controller;
  page.send.hidden = controller !== null;
  page.stop.hidden = controller === null;
}

/** @returns {Promise<string>} */
async function knownModel() {
  model ??= await modelName(page.apiKey.value);
  page.model.textContent = model;
  document.title = `${model} · Paceline`;
  return model;
}

/** Send what is in the box and show the answer as it comes. */
async function send() {
  const text = page.prompt.value.trim();
  if (text === "" || running !== null) return;
  showProblem(null);
  page.prompt.value = "";
  messages.push({ role: "user", content: text });
  const question = conversation.addUser(text);
  const controller = new AbortController();
  setRunning(controller);
  const isAnswered = await answer(controller.signal);
  if (running !== controller) return; // a new chat began meanwhile
  setRunning(null);
  if (isAnswered) return;
  question.remove();
  page.prompt.value ||= text;
}

/**
 * Show one answer as it comes. An answer that never began takes its question back, so that it can be sent again.
 * @param {AbortSignal} signal
 * @returns {Promise<boolean>} whether the answer began
 */
async function answer(signal) {
  const history = messages;
  const shown = conversation.addAnswer();
  /** @type {Pick<Piece, "timings" | "usage" | "finishReason">} */
  const end = { timings: null, usage: null, finishReason: null };
  let problem = null;
  try {
    const system = page.system.value.trim();
    /** @type {Message[]} */
    const prompt = system ? [{ role: "system", content: system }, ...history] : history;
    for await (const piece of streamAnswer(await knownModel(), prompt, settings(), signal)) {
      shown.append(piece.text);
      end.timings = piece.timings ?? end.timings;
      end.usage = piece.usage ?? end.usage;
      end.finishReason = piece.finishReason ?? end.finishReason;
    }
  } catch (error) {
    if (signal.aborted) end.finishReason = "stopped by you";
    else problem = error instanceof Error ? error.message : String(error);
  }
  if (history === messages) showProblem(problem);
  if (problem !== null && shown.text === "") {
    history.pop();
    shown.remove();
    return false;
  }
  history.push({ role: "assistant", content: shown.text });
  shown.finish(problem === null ? paceNote(end.timings, end.usage, end.finishReason) : "broken off");
  return true;
}

/** Forget the conversation, and the answer that may be running. */
function newChat() {
  running?.abort();
  setRunning(null);
  messages = [];
  conversation.clear();
  showProblem(null);
  page.prompt.focus();
}

element("composer", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  void send();
});
page.prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  void send();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
});
page.stop.addEventListener("click", () => running?.abort());
element("new-chat", HTMLButtonElement).addEventListener("click", newChat);
page.apiKey.addEventListener("change", () => void connect());

/** Find the model, and say so when there is none. */
async function connect() {
  try {
    await knownModel();
    showProblem(null);
  } catch (error) {
    page.model.textContent = "not connected";
    showProblem(error instanceof Error ? error.message : String(error));
  }
}

void connect();
