/**
 * The server as the page sees it: which model there is, and a streamed answer.
 *
 * The one idea: whatever goes wrong becomes an Error whose message is fit to show.
 */

import { readEvents } from "./sse.js";

/** @typedef {{role: "system" | "user" | "assistant", content: string}} Message */
/** @typedef {{temperature: number | null, maxTokens: number | null, apiKey: string}} Settings */
/** @typedef {{ttft_ms?: number | null, tpot_ms?: number | null, cached_tokens?: number}} Timings */
/** @typedef {{prompt_tokens: number, completion_tokens: number}} Usage */
/** @typedef {{text: string, finishReason: string | null, timings: Timings | null, usage: Usage | null}} Piece */

/**
 * The name of the served model.
 * @param {string} apiKey
 * @returns {Promise<string>}
 */
export async function modelName(apiKey) {
  const response = await request("v1/models", { headers: headers(apiKey) });
  /** @type {{data: {id: string}[]}} */
  const body = await response.json();
  const model = body.data[0];
  if (!model) throw new Error("The server has no model.");
  return model.id;
}

/**
 * The pieces of one answer, as they arrive.
 * @param {string} model
 * @param {Message[]} messages
 * @param {Settings} settings
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<Piece, void, void>}
 */
export async function* streamAnswer(model, messages, settings, signal) {
  const body = {
    model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
    ...(settings.temperature === null ? {} : { temperature: settings.temperature }),
    ...(settings.maxTokens === null ? {} : { max_tokens: settings.maxTokens }),
  };
  const response = await request("v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json", ...headers(settings.apiKey) },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.body) throw new Error("The server sent no answer.");
  for await (const data of readEvents(response.body)) {
    if (data === "[DONE]") return;
    yield piece(JSON.parse(data));
  }
  throw new Error("The answer broke off: the connection was closed.");
}

/**
 * @param {any} chunk one parsed event
 * @returns {Piece}
 */
function piece(chunk) {
  if (chunk.error) throw new Error(chunk.error.message);
  const choice = chunk.choices?.[0];
  return {
    text: choice?.delta?.content ?? "",
    finishReason: choice?.finish_reason ?? null,
    timings: chunk.timings ?? null,
    usage: chunk.usage ?? null,
  };
}

/**
 * @param {string} apiKey
 * @returns {Record<string, string>}
 */
function headers(apiKey) {
  return apiKey ? { authorization: `Bearer ${apiKey}` } : {};
}

/**
 * @param {string} path
 * @param {RequestInit} options
 * @returns {Promise<Response>}
 */
async function request(path, options) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(path, options);
  } catch (cause) {
    if (options.signal?.aborted) throw cause;
    throw new Error("The server does not answer. Is it still running?", { cause });
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new Error(body?.error?.message ?? `The server answered ${response.status}.`);
}
