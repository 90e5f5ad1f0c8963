// The page of `kformer serve`: the model answers what is typed. Of a translator it also shows which tokens the attention
// links.

const PAUSE = 300; // milliseconds without a key before the server is asked
const LEAST = 0.02; // smaller weights of attention are not shown
const NAMED = 3; // so many of a token's links are told in words
const MOST_LABELS = 8; // so many of the labels that are less probable are shown
const MORE_SIGNATURES = ["translate_detailed", "n_best"];
// What models of each task answer, by the output that only they have.
const ANSWERS = {
  translation: { heading: "Translation", nodes: (found) => [found.translation], next: nextTranslations },
  label: { heading: "Label", nodes: (found) => [found.label], next: nextLabels },
  tags: { heading: "Tags", nodes: taggedWords, next: () => [] },
  text: { heading: "Continued", nodes: (found) => [found.text], next: () => [] },
};
const HINT = "Point at a token, or press Tab and the arrow keys, to see what it is linked with.";
const FLAGS = {
  divided: "The text was translated in parts, each for itself: its lines, or its sentences where a line is long.",
  overlong: "A sentence was too long for the model and was divided within. Its translation may be worse.",
  truncated: "The translation of a part was ended by its largest length. Something may be missing.",
  short: "The translation of a part is much too short for its source. Something may be missing.",
};

const [model, text, token, source, target, answer, others, lines] =
  ["model", "text", "token", "source", "target", "answer", "others", "lines"].map(element);

function element(id) {
  return document.getElementById(id);
}

/** A new element that holds nodes and strings; strings are never read as HTML. */
function made(name, ...children) {
  const node = document.createElement(name);
  node.append(...children);
  return node;
}

// Requests ------------------------------------------------------------------------------------------------------------

/** What the server said when it refused, and after how many seconds it may be asked again. */
class Refusal extends Error {
  constructor(words, response) {
    super(words ?? `The server answers ${response.status} ${response.statusText}`);
    this.status = response.status;
    this.seconds = Number(response.headers.get("Retry-After"));
  }
}

/** The server's answer to a GET, or to a POST of `body`. */
async function ask(path, signal, body) {
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  if (token.value) headers.Authorization = `Bearer ${token.value}`;
  const request = { method: body ? "POST" : "GET", headers, body: JSON.stringify(body), signal };
  const response = await fetch(path, request).catch((error) => {
    throw new Error(`The server cannot be reached: ${error.message}`);
  });
  const content = await response.text();
  signal.throwIfAborted();
  if (response.status === 401) element("access").hidden = false;
  if (!response.ok) throw new Refusal(wordsOf(content), response);
  return JSON.parse(content);
}

/** The words of `{"error": "..."}`; undefined where something else than the server answered, such as a proxy. */
function wordsOf(content) {
  try {
    return JSON.parse(content).error;
  } catch {
    return undefined;
  }
}

let controller = new AbortController();
let timer;

/** Brings the page up to date. What is under way is aborted, so that an older answer never replaces a newer one. */
async function renew() {
  clearTimeout(timer);
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  const [before, wasListed] = [opened, isListed];
  for (const part of [answer, others]) part.classList.add("stale");
  try {
    if (!isListed) await listModels(signal);
    if (opened.name !== model.value) await openModel(signal);
    await translate(signal);
    element("error").textContent = "";
  } catch (error) {
    if (signal.aborted) return;
    const isGone = error.status === 404 && before !== NONE && opened === before; // a newer version took its place
    opened = NONE;
    if (error.status === 404 && !isGone) isListed = false; // it may have another name now
    if (isGone || (wasListed && !isListed)) return renew();
    element("error").textContent = error.message;
    if (error.seconds) timer = setTimeout(renew, 1000 * error.seconds);
  }
}

function renewSoon() {
  clearTimeout(timer);
  timer = setTimeout(renew, PAUSE);
}

// Models --------------------------------------------------------------------------------------------------------------

const NONE = { name: "", version: "", signatures: new Set() };
const tag = element("tag");
let opened = NONE; // the version that is asked
let isListed = false; // whether the models are in the list

function address() {
  return `v1/models/${encodeURIComponent(model.value)}`; // relative: the page may be served below a path
}

async function listModels(signal) {
  const { models } = await ask("v1/models", signal);
  const chosen = model.value;
  model.replaceChildren(...models.map((name) => new Option(name)));
  if (models.includes(chosen)) model.value = chosen;
  isListed = models.length > 0;
  element("chooser").hidden = models.length < 2;
}

async function openModel(signal) {
  const { model_spec: spec, metadata } = await ask(`${address()}/metadata`, signal);
  const signatures = new Set(Object.keys(metadata.signature_def.signature_def));
  opened = { name: model.value, version: spec.version, signatures };
  element("version").textContent = `${model.length > 1 ? "" : `${opened.name}, `}version ${opened.version}`;
  await listTags(signal);
}

/** The words that say what is wanted of the model, if it knows any. What was chosen stays, if it can. */
async function listTags(signal) {
  const [known] = opened.signatures.has("known_tags") ? await predict("known_tags", "", signal) : [[]];
  const chosen = tag.value;
  tag.replaceChildren(...known.map((each) => new Option(each || "(no tag)", each)));
  if (known.includes(chosen)) tag.value = chosen;
  element("wanted").hidden = !known.length;
}

// Answers -------------------------------------------------------------------------------------------------------------

/** The outputs by their names; of a signature with one output, its values alone. */
async function predict(signature, sent, signal) {
  const body = { signature_name: signature, inputs: { text: [sent] } };
  return (await ask(`${address()}/versions/${opened.version}:predict`, signal, body)).outputs;
}

async function translate(signal) {
  const typed = text.value.toWellFormed(); // what the server will read, too
  if (!typed.trim()) {
    answer.hidden = true;
    element("spoken").textContent = "";
    return;
  }
  const sent = tag.value ? `${tag.value} ${typed}` : typed;
  const detailed = opened.signatures.has("translate_detailed");
  const outputs = await predict(detailed ? "translate_detailed" : "serving_default", sent, signal);
  const found = Object.fromEntries(Object.entries(outputs).map(([name, values]) => [name, values[0]])); // of one text
  const name = Object.keys(ANSWERS).find((each) => each in found);
  if (!name) throw new Error(`This page shows no answers of ${Object.keys(found).join(", ")}.`);
  const { heading, nodes, next } = ANSWERS[name];
  answer.hidden = false;
  answer.classList.remove("stale");
  element("heading").textContent = heading;
  for (const id of ["read", "shown", "legend", "detail"]) element(id).hidden = !detailed;
  if (detailed) showTokens(sent, found);
  else target.replaceChildren(...nodes(found, sent));
  element("measure").textContent = name === "label" ? "Probability" : "Score";
  element("meaning").hidden = name === "label";
  element("score").textContent = name === "label" ? percent(found.probability) : rounded(found.score);
  element("spoken").textContent = found[name];
  showNotes(found, name === "translation" ? MORE_SIGNATURES : []);
  const more = name === "translation" && opened.signatures.has("n_best");
  showOthers(next(found, more ? await predict("n_best", sent, signal) : undefined));
}

/** All but the first of `translation` and `score`, 1 x N each, in the answer of `n_best`, if there is one. */
function nextTranslations(found, best) {
  return best ? best.translation[0].map((each, index) => [each, rounded(best.score[0][index])]).slice(1) : [];
}

/** The labels that are less probable, the most probable first. */
function nextLabels({ label, labels, probabilities }) {
  const all = labels.map((each, index) => [each, probabilities[index]]).filter(([each]) => each !== label);
  return all.sort((one, two) => two[1] - one[1]).slice(0, MOST_LABELS).map(([each, share]) => [each, percent(share)]);
}

/** Each word of the text with its tag above it. */
function taggedWords({ tags }, sent) {
  const each = tags.split(" ");
  const words = sent.trim().split(/\s+/u);
  return words.flatMap((word, index) => [made("ruby", word, made("rt", each[index] ?? "")), " "]);
}

function showNotes(found, wanted) {
  const notes = Object.keys(FLAGS).filter((name) => found[name]).map((name) => FLAGS[name]);
  const missing = wanted.filter((name) => !opened.signatures.has(name));
  if (missing.length) {
    const command = `kformer export RUN DIR ${missing.map((name) => `--signature ${name}`).join(" ")}`;
    notes.push(made("span", "This page shows more of an export that is made with ", made("code", command)));
  }
  element("notes").replaceChildren(...notes.map((note) => made("li", note)));
}

/** Shows answers that are less probable, pairs of an answer and its score. */
function showOthers(pairs) {
  const items = pairs.map(([answer, score]) => {
    const words = made("bdi", answer);
    words.lang = "";
    return made("li", words, made("span", score));
  });
  element("found").replaceChildren(...items);
  others.hidden = !items.length;
  others.classList.remove("stale");
}

function rounded(score) {
  const format = { minimumFractionDigits: 2, maximumFractionDigits: 2, signDisplay: "negative" };
  return score.toLocaleString("en", format).replace("-", "−");
}

function percent(share) {
  if (share < 0.005) return "below 1\u00a0%";
  return share < 0.995 ? `${Math.round(100 * share)}\u00a0%` : "above 99\u00a0%";
}

// Tokens and what links them ------------------------------------------------------------------------------------------

const links = new Map(); // from a token's element to {other, weight}, the strongest first
const descriptions = new Map(); // from a token's element to nodes
let focused = null;
let shown = null; // the focused token, or the one that the pointer is at

function showTokens(sent, found) {
  const read = tokensOf(sent, found.source_start, found.source_end, found.source_length);
  const written = tokensOf(found.translation, found.target_start, found.target_end, found.target_length);
  nameEnds(written.tokens, found.alignment_start);
  link(read.tokens, written.tokens, found);
  read.tokens.forEach((each) => describe(each, "attended to by ", 0));
  written.tokens.forEach((each, index) => {
    const probability = Math.exp(found.log_probability[index]);
    each.style.setProperty("--doubt", 1 - probability);
    if (probability < 0.995) each.dataset.percent = Math.round(100 * probability);
    const onEnd = 1 - found.alignment[index].reduce((sum, weight) => sum + weight, 0); // the end of the text has no token
    describe(each, `probability ${percent(probability)}, attends to `, onEnd);
  });
  source.replaceChildren(listbox("Tokens of the text", read.nodes));
  target.replaceChildren(listbox("Tokens of the translation", written.nodes));
  focused = null;
  highlight(null);
}

function listbox(label, nodes) {
  const box = made("div", ...nodes);
  box.setAttribute("role", "listbox");
  box.setAttribute("aria-label", label);
  box.setAttribute("aria-orientation", "horizontal");
  return box;
}

/** A text as nodes: an element for each token, at its offsets in bytes of UTF-8, and the text between the tokens. */
function tokensOf(whole, starts, ends, length) {
  const places = placesOfBytes(whole);
  const nodes = [];
  let done = 0;
  const tokens = Array.from({ length }, (_, index) => {
    const start = Math.max(done, places[starts[index]]);
    const end = Math.max(start, places[ends[index]]);
    const each = made("span", whole.slice(start, end));
    each.setAttribute("role", "option");
    each.setAttribute("aria-selected", "false");
    each.tabIndex = index ? -1 : 0; // Tab goes to one token, the arrow keys to the others
    if (start === end) {
      each.className = "mark";
      each.setAttribute("aria-label", "part of a character"); // another token has all of its bytes
    }
    nodes.push(whole.slice(done, start), each);
    done = end;
    return each;
  });
  return { tokens, nodes: [...nodes, whole.slice(done)] };
}

/** Gives the last token of each part its name, if it shows nothing. Tokens of one part have the same `starts`. */
function nameEnds(tokens, starts) {
  tokens.forEach((each, index) => {
    const isLast = each === tokens.at(-1) || starts[index] !== starts[index + 1];
    if (isLast && !each.textContent) each.setAttribute("aria-label", "end");
  });
}

/** From each byte's number to its character's place in the string. Bytes within a character belong to the next one. */
function placesOfBytes(whole) {
  const encoder = new TextEncoder();
  const places = [];
  let place = 0;
  for (const character of whole) {
    places.push(place);
    place += character.length;
    for (let more = encoder.encode(character).length - 1; more; more--) places.push(place);
  }
  return [...places, place];
}

/** Fills `links` from the weights of each token of the translation over those of its own part of the text. */
function link(read, written, found) {
  links.clear();
  for (const each of [...read, ...written]) links.set(each, []);
  written.forEach((to, index) => {
    found.alignment[index].forEach((weight, offset) => {
      const from = read[found.alignment_start[index] + offset];
      if (!from || weight < LEAST) return;
      links.get(from).push({ other: to, weight });
      links.get(to).push({ other: from, weight });
    });
  });
  for (const list of links.values()) list.sort((one, two) => two.weight - one.weight);
}

/** Tells a token's strongest links, and the weight `onEnd` of what is no token, in words. */
function describe(each, relation, onEnd) {
  const name = (named) => made("bdi", named.textContent || named.getAttribute("aria-label"));
  const told = links.get(each).slice(0, NAMED).map(({ other, weight }) => [name(other), ` ${percent(weight)}`]);
  if (onEnd >= LEAST) told.push([`the end of the text ${percent(onEnd)}`]);
  if (!told.length) told.push(["nothing"]);
  const nodes = [relation, ...told.flatMap((words, index) => (index ? [", ", ...words] : words))];
  each.setAttribute("aria-description", made("p", ...nodes).textContent);
  descriptions.set(each, [name(each), ": ", ...nodes]);
}

// Pointing and moving -------------------------------------------------------------------------------------------------

/** Shows the links of one token, or of none. */
function highlight(each) {
  shown = each;
  for (const other of answer.querySelectorAll(".active, .linked")) {
    other.classList.remove("active", "linked");
    other.style.removeProperty("--weight");
  }
  each?.classList.add("active");
  const linked = each ? links.get(each) : [];
  for (const { other, weight } of linked) {
    other.classList.add("linked");
    other.style.setProperty("--weight", Math.sqrt(weight)); // so that small weights can be seen
  }
  lines.replaceChildren(...linked.map(({ other, weight }) => line(each, other, weight)));
  element("detail").replaceChildren(...(each ? descriptions.get(each) : [HINT]));
}

/** A curve from the lower edge of a token of the text to the upper edge of one of the translation. */
function line(one, other, weight) {
  const [above, below] = source.contains(one) ? [one, other] : [other, one];
  const [from, to] = [above.getClientRects()[0], below.getClientRects()[0]];
  const origin = answer.getBoundingClientRect();
  const [x, y] = [from.left + from.width / 2 - origin.left, from.bottom - origin.top];
  const [u, v] = [to.left + to.width / 2 - origin.left, to.top - origin.top];
  const path = document.createElementNS(lines.namespaceURI, "path");
  path.setAttribute("d", `M${x},${y} C${x},${(y + v) / 2} ${u},${(y + v) / 2} ${u},${v}`);
  path.setAttribute("stroke-opacity", Math.sqrt(weight));
  return path;
}

function tokenAt(event) {
  return event.target.closest('[role="option"]');
}

function focus(each) {
  focused = each;
  for (const other of each?.parentElement.children ?? []) {
    other.tabIndex = other === each ? 0 : -1;
    other.setAttribute("aria-selected", other === each);
  }
  highlight(each);
}

/** Left and right go to the next token, up and down to the strongest link in the other text. */
function move(event) {
  const here = tokenAt(event);
  if (!here || event.altKey || event.ctrlKey || event.metaKey) return;
  const all = [...here.parentElement.children];
  const index = all.indexOf(here);
  const ahead = getComputedStyle(here).direction === "rtl" ? -1 : 1;
  const across = source.contains(here) ? "ArrowDown" : "ArrowUp";
  const goals = { ArrowRight: all[index + ahead], ArrowLeft: all[index - ahead], Home: all[0], End: all.at(-1) };
  const goal = event.key === across ? links.get(here)[0]?.other : goals[event.key];
  if (!goal) return;
  event.preventDefault();
  goal.focus();
}

answer.addEventListener("pointerover", (event) => highlight(tokenAt(event) ?? focused));
answer.addEventListener("pointerleave", () => highlight(focused));
answer.addEventListener("focusin", (event) => focus(tokenAt(event)));
answer.addEventListener("focusout", () => focus(null));
answer.addEventListener("keydown", move);
window.addEventListener("resize", () => highlight(shown));
text.addEventListener("input", (event) => event.isComposing || renewSoon());
text.addEventListener("compositionend", renewSoon);
model.addEventListener("change", renew);
tag.addEventListener("change", renew);
element("access").addEventListener("submit", (event) => {
  event.preventDefault();
  element("access").hidden = true; // it comes back where the server refuses the token
  text.focus();
  renew();
});
renew();
