"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const digit = letter => data.letters.indexOf(letter), number = (text, at) => digit(text[at]) * 64 + digit(text[at + 1]);
const RECEIPT = 9, WORKERS = data.actors.slice(1, 3);
let lang = (navigator.language || "").startsWith("zh") ? "zh" : "en";

// The store's answers, read as packing.py reads them.
function readContents(text) {
  const found = [];
  for (let at = 0; at < text.length; at += 11) {
    found.push(text[at] === "." ? null : Array.from(text.slice(at, at + 11), (letter, field) => letter === "." ? null
      : field === 0 ? data.states[digit(letter)] : field === 7 ? data.errors[digit(letter)] : digit(letter)));
  }
  return found;
}
function readPlaces(text, content, world) {
  for (let at = 0; at < text.length; content++) {
    const first = digit(text[at++]);
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
  for (let at = 0; at < guard.other.length; at += 3) other[number(guard.other, at)] = digit(guard.other[at + 2]);
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
  const there = rowAt(at) !== null, found = at.now < data.until ? [["clock", "tick", 0, 0]] : [];
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
  const unasked = {tick: {now: at.now + 1}, freeze: {frozen: put(at.frozen, true)}, wake: {frozen: put(at.frozen, false)},
    die: {held: put(at.held, [])}}[verb];
  if (unasked) return {at, move, kind: null, after: {...at, ...unasked}};
  const callers = rowAt(at) === null ? ["submit", "sweep"]
    : ["submit", "submit another intent", "cancel", "look and cancel", "sweep", "claim"];
  const asked = verb.replace(", answer lost", "");
  const action = attempt ? 6 * attempt + (count ? count - 1 : 2 + ["finish", "fail", "retry", "renew"].indexOf(verb)) : callers.indexOf(asked);
  const [kind, content] = world.rows.get(at.content * 16 + at.now)[action];
  if (content < 0) return null;
  const answer = data.kinds[kind][0];
  const held = verb === "claim" && typeof answer === "number" ? put(at.held, [...at.held[index], answer]) : at.held;
  return {at, move, kind, after: {...at, content, held}};
}

// The play: the guard that is out, the turns made, how many of them are shown.
let guard = "", world = whole(), turns = [], shown = 0, best = [];
const rowAt = at => world.contents[at.content];
const here = () => shown ? turns[shown - 1].after : START;
const letter = step => data.letters[moves(step.at).findIndex(move => String(move) === String(step.move))];
function start(name, letters) {
  guard = data.guards[name] ? name : "";
  world = guard ? without(guard) : whole();
  turns = [];
  shown = 0;
  for (const one of letters) {
    const move = moves(here())[digit(one)], step = move && turn(here(), move);
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
  const row = rowAt(step.after) || [];
  const key = [verb + ":" + answer, answer, verb].find(name => data.texts["said " + name]) || "";
  return say("said " + key, {state: row[0], ready: row[3], lease: row[4], error: row[7]});
}
const told = step => say(step.move[0]) + say("colon") + label(step.move)
  + (step.kind === null ? "" : " → " + JSON.stringify(data.kinds[step.kind][0])) + say("stop") + meaning(step);
const broken = step => step.kind === null ? "" : data.kinds[step.kind][2];
function met(step) {
  if (step.kind === null) return -1;
  const [, events, promise] = data.kinds[step.kind], before = rowAt(step.at) || [], after = rowAt(step.after);
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
    else if (value) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
const button = (key, text, press, more) => el("button", {type: "button", "data-key": key, press, ...more}, text);
const lane = step => $("lane" + data.actors.indexOf(step.move[0])).content.cloneNode(true);
const log = count => turns.slice(0, count).flatMap(one => one.kind === null ? []
  : data.kinds[one.kind][1].map(event => [one.at.now, ...event])).map((event, i) => [i + 1, ...event]);
function tables(content, events) {
  const row = world.contents[content], receipt = row && row[RECEIPT];
  return {jobs: row ? [[1, ...row.slice(0, RECEIPT)]] : [], receipts: receipt == null ? [] : [[1, receipt, `{"by":${receipt}}`]], events};
}
function show(name, rows, old) {
  const cell = (value, was) => el("td", null, value === was ? String(value ?? "-") : el("mark", null, String(value ?? "-")));
  $(name).replaceChildren(...rows.map((row, r) => el("tr", null, ...row.map((value, c) => cell(value, old[r] && old[r][c])))));
}
function bar(at) {
  const row = rowAt(at), x = moment => 20 + 36 * moment, lease = row && row[4], left = Math.max(0, lease - at.now);
  $("lease").setAttribute("x", x(at.now));
  $("lease").setAttribute("width", 36 * left);
  $("due").setAttribute("d", row ? `M${x(row[2])} 14v28` : "");
  $("now").setAttribute("cx", x(at.now));
  $("clock").textContent = say("time", {now: at.now}) + say(lease == null ? "no lease" : left ? "lease" : "lease over", {lease, left})
    + (row ? say("deadline", {deadline: row[2]}) : "");
}
function render() {
  const key = document.activeElement?.dataset.key, at = here(), step = turns[shown - 1];
  Object.assign(document.documentElement, {lang, className: "plays " + lang});
  const broke = new Set(turns.slice(0, shown).map(broken)), done = step ? met(step) : -1;
  $("say").textContent = (step ? told(step) : say("begin")) + (step && broken(step) ? say("broke", {promise: broken(step)}) : "")
    + (done < 0 ? "" : say("met", {challenge: done + 1, steps: shown, shortest: data.challenges[done][0]}));
  bar(at);
  const groups = {};
  for (const move of moves(at)) {
    const unknown = turn(at, move) === null;
    (groups[move[0]] ||= []).push(button(String(move), label(move), () => press(move), {disabled: unknown, title: unknown && say("unrecorded")}));
  }
  $("buttons").replaceChildren(...Object.entries(groups).map(([actor, all]) => el("fieldset", null, el("legend", null, say(actor)), ...all)));
  const old = tables(step ? step.at.content : at.content, log(shown - 1));
  for (const [name, rows] of Object.entries(tables(at.content, log(shown)))) show(name, rows, old[name]);
  document.querySelectorAll("#promises li").forEach(item => {
    item.className = broke.has(item.id) ? "broken" : "";
    item.firstElementChild.textContent = broke.has(item.id) ? "✗ " + say("is broken") : "✓";
  });
  if (done >= 0) best[done] = Math.min(shown, best[done] || shown);
  document.querySelectorAll("#challenges .done").forEach((place, i) => place.textContent = best[i] ? `✓ ${best[i]}` : "");
  $("story").replaceChildren(...turns.map((one, i) => el("li", null, lane(one), el("span", {class: "t"}, String(one.at.now)),
    button("to" + i, told(one) + (broken(one) ? " ✗ " + broken(one) : ""), () => go(i + 1), {"aria-current": i === shown - 1 && "step"}))));
  $("back").disabled = !shown;
  $("forward").disabled = shown === turns.length;
  $("guard").value = guard || "-";
  const of = data.guards[guard];
  $("why").replaceChildren(...(of ? [of.why[lang] + say("stop"), el("code", null, of.where), el("br"), el("code", null, of.line)] : [say("whole")]));
  history.replaceState(null, "", "#" + guard + "/" + turns.map(letter).join("") + (shown < turns.length ? "/" + shown : ""));
  if (key) ([...document.querySelectorAll("[data-key]:enabled")].find(one => one.dataset.key === key) || $("say")).focus();
}
function fromAddress() {
  const [name, letters, to] = decodeURIComponent(location.hash.slice(1)).split("/");
  start(name || "", letters ?? data.story);
  go(to === undefined ? turns.length : Number(to) || 0);
}

for (const name of ["-", ...Object.keys(data.guards)]) $("guard").append(el("option", {value: name}, name));
const when = (id, happens, then) => $(id).addEventListener(happens, () => { then(); render(); });
when("guard", "change", () => start($("guard").value, data.guards[$("guard").value]?.history || ""));
when("lang", "click", () => lang = lang === "zh" ? "en" : "zh");
when("back", "click", () => shown--);
when("forward", "click", () => shown++);
when("again", "click", () => start(guard, ""));
document.addEventListener("keydown", event => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.tagName === "SELECT") return;
  if (event.key === "ArrowLeft") go(shown - 1);
  if (event.key === "ArrowRight") go(shown + 1);
});
addEventListener("hashchange", fromAddress);
fromAddress();
})();
