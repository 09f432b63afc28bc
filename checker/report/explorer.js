"use strict";

// A walk is the offers taken from the first state on; `at` says how many of them were. The run of the slice, if it is
// about one, is the walk to begin with, and one can always return to it. All text goes in as text, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const SHOWN = 50; // states that a search lists
const STEP = 1.25; // of one zoom
const run = data.run && data.run.map((step) => step.offer);
let walk = run || [];
let at = 0;
let scale = 1;

const byId = (id) => document.getElementById(id);
const graph = byId("graph");
const svg = graph.querySelector("svg");
const size = [Number(svg.getAttribute("width")), Number(svg.getAttribute("height"))];
const boxes = [...svg.querySelectorAll(".node")].sort((a, b) => a.dataset.node - b.dataset.node);
const arcs = [...svg.querySelectorAll(".arc")];

function make(tag, text, properties = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  return Object.assign(element, properties);
}

// The states of a walk, one more than it has steps; null when it is not one that can be taken.
function states(offers) {
  const found = [0];
  for (const number of offers) {
    const offer = data.nodes[found.at(-1)].offers[number];
    if (offer === undefined || offer.to === null) return null;
    found.push(offer.to);
  }
  return found;
}

function wayTo(node) {
  const offers = [];
  for (let here = node; here !== 0; here = data.nodes[here].parent) {
    offers.unshift(data.nodes[data.nodes[here].parent].offers.findIndex((offer) => offer.to === here));
  }
  return offers;
}

const onRun = () => run !== null && run.join() === walk.join();
const loops = () => onRun() && data.loop !== null && data.loop < run.length;
const offerOf = (been, step) => data.nodes[been[step]].offers[walk[step]];

function words(offer) {
  if (offer.error !== null) return `${offer.event} !! ${offer.error}`;
  return offer.response === null ? offer.event : `${offer.event} ⇒ ${offer.response}`;
}

// ---- The fragment: step=N, and for a walk of one's own its offers, walk=3.0.1

function fragment() {
  const own = onRun() || walk.length === 0 ? "" : `walk=${walk.join(".")}&`;
  return `#${own}step=${at}`;
}

function readFragment() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const number = (text) => (/^\d{1,9}$/.test(text) ? Number(text) : NaN);
  const own = asked.has("walk") ? asked.get("walk").split(".").map(number) : run || [];
  const step = asked.has("step") ? number(asked.get("step")) : 0;
  if (states(own) === null || !(step <= own.length)) {
    walk = run || [];
    go(0, `There is no ${location.hash} here; this is the first state.`);
  } else {
    walk = own;
    go(step);
  }
}

// ---- Moving

function go(step, told) {
  at = step;
  show(told);
  history.replaceState(null, "", fragment());
}

function follow(offers) {
  walk = offers;
  go(walk.length);
}

function forward() {
  if (at < walk.length) go(at + 1);
  else if (loops()) go(data.loop + 1);
}

function back() {
  if (at > 0) go(at - 1);
}

// ---- Showing

function show(told) {
  const been = states(walk);
  const node = been[at];
  const taken = at > 0 ? offerOf(been, at - 1) : null;
  const happened = taken === null ? "the first state" : words(taken);
  byId("status").textContent = told || `Step ${at} of ${walk.length}: ${happened}`;
  byId("state-heading").textContent = `State ${node}` + (at > 0 ? `, after step ${at}` : "");
  disable("first", at === 0);
  disable("back", at === 0);
  disable("forward", at === walk.length && !loops());
  disable("last", at === walk.length);
  byId("return").hidden = run === null || onRun();
  showState(node, taken === null ? {} : taken.changes);
  showOffers(node);
  showWalk(been);
  showGraph(been);
}

function disable(id, off) {
  // A button that is disabled for good loses the focus, and with it the keys.
  byId(id).setAttribute("aria-disabled", String(off));
}

function showState(node, changes) {
  const rows = data.components.map((component, place) => {
    const row = make("tr", "");
    row.append(make("th", component.name, { scope: "row", title: component.meaning }));
    const cell = make("td", data.nodes[node].state[place]);
    if (Object.hasOwn(changes, component.name)) {
      row.className = "changed";
      cell.append(make("span", `changed: ${changes[component.name]}`, { className: "change" }));
    }
    row.append(cell);
    return row;
  });
  byId("state").replaceChildren(...rows);
}

function showOffers(node) {
  const offers = data.nodes[node].offers.map((offer, number) => ({ offer, number }));
  // What leads somewhere comes first.
  offers.sort((a, b) => (a.offer.to === node) - (b.offer.to === node));
  const items = offers.map(({ offer, number }) => {
    const button = make("button", words(offer), { type: "button" });
    button.dataset.offer = number;
    const next = at < walk.length && walk[at] === number;
    let where = `to state ${offer.to}`;
    if (offer.to === null) where = "leads out of this slice";
    else if (offer.to === node) where = "changes nothing";
    button.append(make("span", ` (${where})`, { className: "quiet" }));
    if (next) button.append(make("span", " next step", { className: "kept" }));
    button.classList.toggle("next", next);
    button.setAttribute("aria-disabled", String(offer.to === null));
    const item = make("li", "");
    item.append(button);
    return item;
  });
  if (items.length === 0) items.push(make("li", "Nothing: no event leads on from here."));
  byId("offers").replaceChildren(...items);
}

function showWalk(been) {
  const items = been.map((node, step) => {
    const text = step === 0 ? "the first state" : words(offerOf(been, step - 1));
    const button = make("button", text, { type: "button" });
    button.dataset.step = step;
    if (step === at) button.setAttribute("aria-current", "step");
    const item = make("li", "");
    item.append(button);
    return item;
  });
  byId("walk").replaceChildren(...items);
  byId("loop").hidden = !onRun() || data.loop === null;
  byId("loop").textContent = loops()
    ? `Steps ${data.loop + 1} to ${walk.length} repeat for ever.`
    : "And then nothing more happens, for ever.";
}

function showGraph(been) {
  const node = been[at];
  boxes.forEach((box, number) => {
    box.classList.toggle("current", number === node);
    box.classList.toggle("been", been.slice(0, at).includes(number));
    box.setAttribute("tabindex", number === node ? "0" : "-1");
    if (number === node) box.setAttribute("aria-current", "true");
    else box.removeAttribute("aria-current");
  });
  const from = at > 0 ? been[at - 1] : -1;
  for (const arc of arcs) {
    arc.classList.toggle("current", Number(arc.dataset.from) === from && Number(arc.dataset.to) === node);
  }
  reveal(boxes[node]);
}

function reveal(box) {
  const inner = box.getBoundingClientRect();
  const outer = graph.getBoundingClientRect();
  if (inner.left < outer.left || inner.right > outer.right) {
    graph.scrollLeft += (inner.left + inner.right - outer.left - outer.right) / 2;
  }
  if (inner.top < outer.top || inner.bottom > outer.bottom) {
    graph.scrollTop += (inner.top + inner.bottom - outer.top - outer.bottom) / 2;
  }
}

function zoom(factor) {
  scale = Math.min(4, Math.max(0.1, scale * factor));
  svg.setAttribute("width", size[0] * scale);
  svg.setAttribute("height", size[1] * scale);
  reveal(svg.querySelector(".node.current"));
}

// ---- Finding

const texts = data.nodes.map((node) =>
  data.components.map((component, place) => `${component.name}: ${node.state[place]}`),
);
const has = (text, words) => words.every((word) => text.toLowerCase().includes(word));

// What is between commas is asked of one component each: that its name and value have all of those words.
function asked(query) {
  const parts = query.toLowerCase().split(",").map((part) => part.split(/\s+/).filter(Boolean));
  return parts.filter((words) => words.length > 0);
}

function matching(query) {
  const parts = asked(query);
  const found = [...data.nodes.keys()].filter((node) =>
    parts.every((words) => texts[node].some((text) => has(text, words))),
  );
  const number = /^#?(\d+)$/.exec(query.trim());
  // A number alone is first of all that of a state.
  if (number === null || !(Number(number[1]) < data.nodes.length)) return found;
  return [Number(number[1]), ...found.filter((node) => node !== Number(number[1]))];
}

function search() {
  const query = byId("search").value;
  const searching = query.trim() !== "";
  const found = searching ? matching(query) : [];
  graph.classList.toggle("searching", searching);
  boxes.forEach((box, number) => box.classList.toggle("found", found.includes(number)));
  byId("found").textContent = searching ? `${found.length} of ${data.nodes.length} states` : "";
  const items = found.slice(0, SHOWN).map((node) => {
    const lines = texts[node].filter((text) => asked(query).some((words) => has(text, words)));
    const button = make("button", `State ${node}: ${(lines.length ? lines : texts[node]).join("; ")}`);
    button.type = "button";
    button.dataset.node = node;
    const item = make("li", "");
    item.append(button);
    return item;
  });
  if (found.length > SHOWN) items.push(make("li", `and ${found.length - SHOWN} more`));
  byId("matches").replaceChildren(...items);
  byId("matches").hidden = !searching;
}

// ---- What the reader does

function press(id, act) {
  byId(id).addEventListener("click", (event) => {
    if (event.currentTarget.getAttribute("aria-disabled") !== "true") act();
  });
}

function within(id, act) {
  byId(id).addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button !== null && button.getAttribute("aria-disabled") !== "true") act(button.dataset);
  });
}

press("first", () => go(0));
press("back", back);
press("forward", forward);
press("last", () => go(walk.length));
press("return", () => {
  walk = run;
  go(0);
  byId("first").focus();
});
press("smaller", () => zoom(1 / STEP));
press("larger", () => zoom(STEP));
within("walk", ({ step }) => {
  go(Number(step));
  byId("walk").querySelector("[aria-current]").focus();
});
within("offers", ({ offer }) => {
  follow([...walk.slice(0, at), Number(offer)]);
  byId("state-heading").focus();
});
within("matches", ({ node }) => follow(wayTo(Number(node))));
byId("search").addEventListener("input", search);
byId("search").addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    event.target.value = "";
    search();
  } else if (event.key === "Enter") {
    byId("matches").querySelector("button")?.click();
  }
});

svg.setAttribute("role", "group");
boxes.forEach((box, number) => {
  const lines = [...box.querySelectorAll("text.line")].map((line) => line.textContent);
  box.setAttribute("role", "button");
  box.setAttribute("aria-label", `State ${number}: ${lines.join("; ") || "nothing changes"}`);
  box.addEventListener("click", () => follow(wayTo(number)));
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      follow(wayTo(number));
    }
  });
});

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  const act = {
    ArrowRight: forward,
    ArrowLeft: back,
    Home: () => go(0),
    End: () => go(walk.length),
    "/": () => byId("search").focus(),
  }[event.key];
  if (act === undefined) return;
  event.preventDefault();
  act();
});

window.addEventListener("hashchange", readFragment);
readFragment();
