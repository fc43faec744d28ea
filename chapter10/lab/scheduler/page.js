"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const number = (text, at) => data.letters.indexOf(text[at]) * 64 + data.letters.indexOf(text[at + 1]);
const FIELDS = ["state", "attempt", "deadline", "ready_at", "lease_until", "done", "total", "error", "ended_at"];
const RECEIPT = 9, WORKERS = ["worker A", "worker B"];
let lang = (navigator.language || "").startsWith("zh") ? "zh" : "en";

// What the store answered, read as packing.py reads it.
function readContents(text) {
  const found = [];
  for (let at = 0; at < text.length; at += 10) {
    found.push(text[at] === "." ? null : Array.from(text.slice(at, at + 10), (letter, field) => {
      const value = letter === "." ? null : data.letters.indexOf(letter);
      return value === null ? null : field === 0 ? data.states[value] : field === 7 ? data.errors[value] : value;
    }));
  }
  return found;
}
function readPlaces(text, content, world) {
  for (let at = 0; at < text.length; content++) {
    const first = data.letters.indexOf(text[at++]);
    for (let now = first; now <= data.until; now++) {
      const pattern = number(text, at), row = [];
      at += 2;
      for (let kind = 0; kind < data.patterns[pattern].length; kind += 2) {
        const found = number(data.patterns[pattern], kind), follows = data.kinds[found][3];
        row.push([found, follows === 2 ? -1 : follows === 1 ? number(text, at) : content]);
        if (follows === 1) at += 2;
      }
      world.numbers.push([content, now, pattern]);
      world.rows.set(content * 16 + now, row);
    }
  }
}
function whole() {
  const world = {contents: readContents(data.contents), rows: new Map(), numbers: []};
  readPlaces(data.places, 0, world);
  return world;
}
function without(name) {
  const world = whole(), guard = data.guards[name], usual = {}, other = {};
  guard.rules.forEach(([pattern], rule) => usual[pattern] ??= rule);
  for (let at = 0; at < guard.other.length; at += 3) other[number(guard.other, at)] = data.letters.indexOf(guard.other[at + 2]);
  let next = 0;
  world.numbers.forEach(([content, now, pattern], place) => {
    const rule = guard.rules[other[place] ?? usual[pattern]], row = world.rows.get(content * 16 + now);
    const before = row.map(([, follows]) => follows);
    for (const [action, kind, follows] of rule ? rule[1] : []) {
      row[action] = [kind, follows === -1 ? content : follows === -2 ? -1 : follows === -3 ? number(guard.next, next) : before[follows]];
      if (follows === -3) next += 2;
    }
  });
  const own = world.contents.length;
  world.contents.push(...readContents(guard.contents));
  readPlaces(guard.places, own, world);
  return world;
}

// Playing, as play.py plays.
const START = {content: 0, now: 0, held: [[], []], frozen: [false, false]};
function moves(at) {
  const there = world.contents[at.content] !== null, found = at.now < data.until ? [["clock", "tick", 0, 0]] : [];
  found.push(["alice", "submit", 0, 0]);
  if (there) found.push(["alice", "submit another intent", 0, 0], ["alice", "cancel", 0, 0], ["mallory", "look and cancel", 0, 0]);
  found.push(["sweeper", "sweep", 0, 0]);
  WORKERS.forEach((worker, index) => {
    const held = at.held[index];
    if (at.frozen[index]) return found.push([worker, "wake", 0, 0]);
    if (there && !held.length) found.push([worker, "claim", 0, 0], [worker, "claim, answer lost", 0, 0]);
    if (held.length) found.push([worker, "freeze", 0, 0], [worker, "die", 0, 0]);
    for (const attempt of held) {
      found.push([worker, "progress", attempt, 1], [worker, "progress", attempt, 2]);
      for (const verb of ["finish", "fail", "retry", "renew"]) found.push([worker, verb, attempt, 0]);
    }
  });
  return found;
}
function turn(at, move) {
  const [actor, verb, attempt, count] = move, index = WORKERS.indexOf(actor);
  const put = (list, value) => list.map((old, i) => i === index ? value : old);
  const still = after => ({at, move, kind: null, after});
  if (verb === "tick") return still({...at, now: at.now + 1});
  if (verb === "freeze" || verb === "wake") return still({...at, frozen: put(at.frozen, verb === "freeze")});
  if (verb === "die") return still({...at, held: put(at.held, [])});
  const callers = world.contents[at.content] === null ? ["submit", "sweep"]
    : ["submit", "submit another intent", "cancel", "look and cancel", "sweep", "claim"];
  const asked = verb.replace(", answer lost", "");
  const action = attempt ? 6 * attempt + (count ? count - 1 : 2 + ["finish", "fail", "retry", "renew"].indexOf(verb)) : callers.indexOf(asked);
  const [kind, content] = world.rows.get(at.content * 16 + at.now)[action];
  if (content < 0) return null;
  const answer = data.kinds[kind][0];
  const held = verb === "claim" && typeof answer === "number" ? put(at.held, [...at.held[index], answer]) : at.held;
  return {at, move, kind, after: {...at, content, held}};
}

// The play: a guard or none, the turns made, and how many of them are shown.
let guard = "", world = whole(), turns = [], shown = 0;
const here = () => shown ? turns[shown - 1].after : START;
const letter = step => data.letters[moves(step.at).findIndex(move => String(move) === String(step.move))];
function start(name, letters) {
  guard = data.guards[name] ? name : "";
  world = guard ? without(guard) : whole();
  turns = [];
  shown = 0;
  for (const one of letters) {
    const move = moves(here())[data.letters.indexOf(one)], step = move && turn(here(), move);
    if (!step) break;
    shown = turns.push(step);
  }
}
function press(move) {
  turns.length = shown;
  shown = turns.push(turn(here(), move));
  render();
}
function go(to) {
  shown = Math.max(0, Math.min(turns.length, to));
  render();
}

// Words.
const say = (key, values = {}) => data.texts[key][lang].replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "-");
const label = ([, verb, attempt, count]) => say("do " + verb, {count}) + (attempt ? say("of attempt", {attempt}) : "");
function meaning(step) {
  if (step.kind === null) return say("do " + step.move[1] + ".");
  const answer = JSON.stringify(data.kinds[step.kind][0]), verb = step.move[1].replace(", answer lost", "");
  const row = world.contents[step.after.content] || [];
  const key = [verb + ":" + answer, answer, verb].find(name => data.texts["said " + name]) || "";
  return say("said " + key, {state: row[0], attempt: row[1], deadline: row[2], ready: row[3], lease: row[4], done: row[5], error: row[7]});
}
const told = step => say(step.move[0]) + say("colon") + label(step.move)
  + (step.kind === null ? "" : " → " + JSON.stringify(data.kinds[step.kind][0])) + say("stop") + meaning(step);
const broken = step => step.kind === null ? "" : data.kinds[step.kind][2];
function met(step) {
  if (step.kind === null) return -1;
  const [, events, promise] = data.kinds[step.kind], before = world.contents[step.at.content] || [], after = world.contents[step.after.content];
  const succeeded = events.some(event => event[1] === "succeeded");
  if (step.move[1] === "finish" && before[RECEIPT] != null && promise === "J1") return 0;
  if (succeeded && /cancel/.test(before[0])) return 1;
  return succeeded && after[RECEIPT] < before[1] ? 2 : -1;
}

// The screen.
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "press") made.addEventListener("click", value);
    else if (value === true) made.setAttribute(name, "");
    else if (value != null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
const button = (key, text, press, more) => el("button", {type: "button", "data-key": key, press, ...more}, text);
const cell = (value, old) => el("td", null, value === old ? String(value ?? "-") : el("mark", null, String(value ?? "-")));
function rowsOf(step) {
  const row = world.contents[here().content], old = step ? world.contents[step.at.content] : row;
  const jobs = row ? [el("tr", null, el("td", null, "1"), ...FIELDS.map((_, i) => cell(row[i], old ? old[i] : undefined)))] : [];
  const receipt = row && row[RECEIPT];
  const receipts = receipt != null ? [el("tr", null, el("td", null, "1"),
    cell(receipt, old ? old[RECEIPT] : undefined), cell(`{"by":${receipt}}`, old && old[RECEIPT] != null ? `{"by":${old[RECEIPT]}}` : undefined))] : [];
  const events = [];
  turns.slice(0, shown).forEach((one, i) => (one.kind === null ? [] : data.kinds[one.kind][1]).forEach(event =>
    events.push(el("tr", null, ...[events.length + 1, one.at.now, ...event].map(value => cell(value, i === shown - 1 ? undefined : value))))));
  return {jobs, receipts, events};
}
function bar(at) {
  const row = world.contents[at.content], x = moment => 20 + 36 * moment;
  const lease = row && row[4], parts = [`<line x1="20" x2="380" y1="30" y2="30"/>`];
  for (let t = 0; t <= 10; t++) parts.push(`<text x="${x(t)}" y="50">${t}</text>`);
  if (lease != null) parts.push(`<rect x="${x(Math.min(at.now, lease))}" width="${36 * Math.max(0, lease - at.now)}" y="22" height="16"/>`);
  if (row) parts.push(`<path d="M${x(row[2])} 14v28"/>`);
  parts.push(`<circle cx="${x(at.now)}" cy="30" r="7"/>`);
  $("bar").innerHTML = `<svg class="wide" viewBox="0 0 400 56" aria-hidden="true">${parts.join("")}</svg>`;
  $("clock").textContent = say("time", {now: at.now}) + (lease == null ? say("no lease") : at.now < lease
    ? say("lease", {lease, left: lease - at.now}) : say("lease over", {lease})) + (row ? say("deadline", {deadline: row[2]}) : "");
}
function render() {
  const key = document.activeElement && document.activeElement.dataset.key, at = here(), step = turns[shown - 1];
  document.documentElement.lang = lang;
  document.documentElement.className = "plays " + lang;
  const broke = new Set(turns.slice(0, shown).map(broken).filter(Boolean)), done = step ? met(step) : -1;
  $("say").textContent = (step ? told(step) : say("begin")) + (step && broken(step) ? say("broke", {promise: broken(step)}) : "")
    + (done < 0 ? "" : say("met", {challenge: done + 1, steps: shown, shortest: data.challenges[done][0]}));
  bar(at);
  const groups = {};
  for (const move of moves(at)) {
    const unknown = turn(at, move) === null;
    (groups[move[0]] ||= []).push(button(String(move), label(move), () => press(move), {disabled: unknown, title: unknown ? say("unrecorded") : null}));
  }
  $("buttons").replaceChildren(...Object.entries(groups).map(([actor, all]) => el("fieldset", null, el("legend", null, say(actor)), ...all)));
  for (const [name, rows] of Object.entries(rowsOf(step))) $(name).replaceChildren(...rows);
  document.querySelectorAll("#promises li").forEach(item => {
    const kept = !broke.has(item.id);
    item.className = kept ? "" : "broken";
    item.firstElementChild.textContent = kept ? "✓" : "✗ " + say("is broken");
  });
  $("story").replaceChildren(...turns.map((one, i) => el("li", {class: "c" + data.actors.indexOf(one.move[0])},
    el("span", {class: "t"}, String(one.at.now)), button("to" + i, told(one) + (broken(one) ? " ✗ " + broken(one) : ""), () => go(i + 1),
      i === shown - 1 ? {"aria-current": "step"} : null))));
  $("back").disabled = !shown;
  $("forward").disabled = shown === turns.length;
  $("guard").value = guard;
  const of = data.guards[guard];
  $("why").replaceChildren(...(of ? [of.why[lang] + say("stop"), el("code", null, of.where), el("br"), el("code", null, of.line)] : [say("whole")]));
  history.replaceState(null, "", "#" + guard + "/" + turns.map(letter).join("") + (shown < turns.length ? "/" + shown : ""));
  const again = key && [...document.querySelectorAll("[data-key]")].find(one => one.dataset.key === key);
  if (key) (again && !again.disabled ? again : $("say")).focus();
}
function fromAddress() {
  const [name, letters, to] = decodeURIComponent(location.hash.slice(1)).split("/");
  start(name || "", letters ?? data.story);
  go(to === undefined ? turns.length : Number(to) || 0);
}
function choose(name) {
  start(name, name ? data.guards[name].history : "");
  render();
}

for (const name of ["", ...Object.keys(data.guards)]) $("guard").append(el("option", {value: name}, name || "—"));
$("guard").addEventListener("change", () => choose($("guard").value));
$("lang").addEventListener("click", () => { lang = lang === "zh" ? "en" : "zh"; render(); });
$("back").addEventListener("click", () => go(shown - 1));
$("forward").addEventListener("click", () => go(shown + 1));
$("again").addEventListener("click", () => { start(guard, ""); render(); });
document.addEventListener("keydown", event => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.tagName === "SELECT") return;
  if (event.key === "ArrowLeft") go(shown - 1);
  if (event.key === "ArrowRight") go(shown + 1);
});
addEventListener("hashchange", fromAddress);
fromAddress();
})();
