/**
 * Server-sent events from a byte stream.
 *
 * The one idea: bytes are decoded and cut into events as they come, so it does not matter where the network cuts them.
 * Only `data` fields are given; names, ids and comments are left out, as nothing here uses them.
 * Source: WHATWG HTML, section 9.2 "Server-sent events".
 */

/**
 * The data of each event, in order.
 * @param {ReadableStream<Uint8Array>} stream
 * @returns {AsyncGenerator<string, void, void>}
 */
export async function* readEvents(stream) {
  const decoder = new TextDecoder();
  const reader = stream.getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      const [events, tail] = cutEvents(rest);
      rest = tail;
      yield* events;
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * The whole events at the head of `text`, and what is left after them.
 * @param {string} text
 * @returns {[string[], string]}
 */
export function cutEvents(text) {
  const blocks = text.split(/\r\n\r\n|\n\n|\r\r/);
  const tail = blocks.pop() ?? "";
  const events = blocks.flatMap((block) => {
    const data = block.split(/\r\n|\n|\r/).filter((line) => line.startsWith("data:"));
    return data.length === 0 ? [] : [data.map((line) => line.slice(5).replace(/^ /, "")).join("\n")];
  });
  return [events, tail];
}
