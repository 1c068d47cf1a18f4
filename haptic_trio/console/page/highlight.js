// Syntax colours of the configuration: parts of a line, each with a class. The text itself stays as it is.
import { make } from "./dom.js";

// Comments, texts in quotes, and words; a blank or the beginning is before a comment.
const PARTS = /(?<comment>(?:^|(?<=\s))#.*$)|(?<string>"(?:[^"\\]|\\.)*"|'[^']*')|(?<word>(?:\\.|[^\s"'\\])+)/g;
const CONDITIONS = new Set(["if", "unless", "or", "||", "{", "}"]);
const NUMBER = /^\d+(?:\.\d+)?(?:us|ms|s|m|h|d|k|g)?$/i;
const LONGEST = 2000;

// Returns the nodes of *line*, a line of the file *path*.
export function highlighted({ text, is_secret: isSecret }, path) {
  if (isSecret) return [make("span", text, "faint")];
  // Very long lines have no colours: they would make thousands of elements.
  if (text.length > LONGEST) return [text];
  if (path.endsWith(".cfg")) return coloured(text, classOfWord(/^\s/.test(text)));
  if (/\.(?:map|list|txt)$/.test(path)) return coloured(text, (word, at) => (at === 0 ? "code-directive" : ""));
  return [text];
}

const classOfWord = (isIndented) => (word, at) => {
  if (at === 0) return isIndented ? "code-directive" : "code-section";
  if (CONDITIONS.has(word)) return "code-condition";
  return NUMBER.test(word) ? "code-string" : "";
};

function coloured(text, classOf) {
  const nodes = [];
  let end = 0;
  let words = 0;
  for (const found of text.matchAll(PARTS)) {
    const { comment, string, word } = found.groups;
    const name = comment !== undefined ? "faint" : string !== undefined ? "code-string" : classOf(word, words);
    // A word that goes on after a text in quotes is one word.
    if (comment === undefined && (found.index > end || !words)) words += 1;
    if (found.index > end) nodes.push(text.slice(end, found.index));
    nodes.push(name ? make("span", found[0], name) : found[0]);
    end = found.index + found[0].length;
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}
