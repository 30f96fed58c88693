/**
 * A little Markdown as DOM nodes: code fences, inline code, bold, headings, lists, paragraphs.
 *
 * The one idea: text only ever becomes text nodes. No HTML is parsed and no link is made, so nothing in a model's answer
 * can run or lead anywhere.
 */

const FENCE = /^ {0,3}```/;
const HEADING = /^#{1,6} +(.*)$/;
const ITEM = /^ *(?:[-*+]|\d{1,9}[.)]) +(.*)$/;
const INLINE = /(`[^`\n]+`|\*\*[^*\n]+\*\*)/;

/**
 * The text as nodes.
 * @param {string} text
 * @returns {DocumentFragment}
 */
export function render(text) {
  const fragment = document.createDocumentFragment();
  const lines = text.split("\n");
  for (let start = 0; start < lines.length; ) {
    const end = blockEnd(lines, start);
    const node = block(lines.slice(start, end));
    if (node) fragment.append(node);
    start = end;
  }
  return fragment;
}

/** @param {string} line */
function kind(line) {
  if (FENCE.test(line)) return "fence";
  if (HEADING.test(line)) return "heading";
  if (ITEM.test(line)) return "item";
  return line.trim() === "" ? "blank" : "text";
}

/**
 * The index after the block that begins at `start`.
 * @param {string[]} lines
 * @param {number} start
 * @returns {number}
 */
function blockEnd(lines, start) {
  const first = kind(lines[start] ?? "");
  if (first === "heading") return start + 1;
  let end = start + 1;
  if (first === "fence") {
    while (end < lines.length && !FENCE.test(lines[end] ?? "")) end++;
    return end + 1;
  }
  while (end < lines.length && kind(lines[end] ?? "") === first) end++;
  return end;
}

/**
 * @param {string[]} lines the lines of one block
 * @returns {HTMLElement | null}
 */
function block(lines) {
  const first = lines[0] ?? "";
  switch (kind(first)) {
    case "blank":
      return null;
    case "fence":
      return codeBlock(lines);
    case "heading":
      return inline("h2", HEADING.exec(first)?.[1] ?? "");
    case "item": {
      const list = document.createElement(/^ *\d/.test(first) ? "ol" : "ul");
      list.append(...lines.map((line) => inline("li", ITEM.exec(line)?.[1] ?? "")));
      return list;
    }
    default:
      return inline("p", lines.join("\n"));
  }
}

/**
 * @param {string[]} lines from the opening fence to the closing one, which may still be on its way
 * @returns {HTMLElement}
 */
function codeBlock(lines) {
  const isClosed = lines.length > 1 && FENCE.test(lines[lines.length - 1] ?? "");
  const code = document.createElement("code");
  code.textContent = lines.slice(1, isClosed ? -1 : undefined).join("\n");
  const frame = document.createElement("pre");
  frame.tabIndex = 0; // so that the keyboard can scroll it
  frame.append(code);
  return frame;
}

/**
 * @param {string} tag
 * @param {string} text
 * @returns {HTMLElement}
 */
function inline(tag, text) {
  const element = document.createElement(tag);
  for (const part of text.split(INLINE)) {
    if (INLINE.test(part)) {
      const [name, width] = part.startsWith("`") ? ["code", 1] : ["strong", 2];
      const child = document.createElement(name);
      child.textContent = part.slice(width, -width);
      element.append(child);
    } else if (part) {
      element.append(part);
    }
  }
  return element;
}
