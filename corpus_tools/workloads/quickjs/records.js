// Closures, objects, strings, regular expressions, JSON and sorting: a little log analyser.
"use strict";

function generator(seed) {
  return function (limit) {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return (seed >>> 8) % limit;
  };
}

function hash(text) {
  let h = 2166136261;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619) >>> 0;
  return h.toString(16);
}

function check(condition, what) {
  if (!condition) throw new Error("wrong: " + what);
}

const random = generator(2024);
const pick = (list) => list[random(list.length)];
const hosts = ["alpha", "beta", "gamma", "delta", "epsilon"];
const verbs = ["GET", "PUT", "POST", "DELETE"];
const paths = ["/", "/index.html", "/api/items", "/api/items/%20x", "/static/größe.css"];

function makeLine(number) {
  const size = random(50000);
  const status = pick([200, 200, 200, 301, 404, 500]);
  const name = pick(hosts) + "-" + random(40);
  return `${number} [${name}] "${pick(verbs)} ${pick(paths)}?id=${random(900)}" ${status} ${size}`;
}

const pattern = /^(\d+) \[(?<host>[a-z]+)-(\d+)\] "([A-Z]+) ([^\s?"]*)\?id=(\d+)" (\d{3}) (\d+)$/u;
const lines = Array.from({ length: 600 }, (_, i) => makeLine(i));
const records = lines.map((line) => {
  const match = pattern.exec(line);
  check(match !== null, line);
  const [, number, , rack, verb, path, id, status, size] = match;
  return {
    number: +number, host: match.groups.host, rack: +rack, verb, path, id: parseInt(id, 10),
    status: Number(status), size: Number(size),
  };
});
print("lines", lines.length, hash(lines.join("\n")));

// Group, reduce, sort by several keys.
const groups = {};
for (const record of records) (groups[record.host + ":" + record.status] ||= []).push(record);
const table = Object.entries(groups)
  .map(([key, list]) => ({ key, count: list.length, bytes: list.reduce((a, r) => a + r.size, 0) }))
  .sort((a, b) => b.count - a.count || (a.key < b.key ? -1 : 1));
print("first", table.slice(0, 3).map((row) => `${row.key}=${row.count}/${row.bytes}`).join(" "));
const byKeys = [...records].sort((a, b) =>
  a.path.localeCompare(b.path) || a.rack - b.rack || b.size - a.size || a.number - b.number);
print("sorted", hash(byKeys.map((r) => r.number).join(",")));

// JSON there and back, with a reviver and a replacer.
const json = JSON.stringify({ records, table }, null, 1);
const back = JSON.parse(json, (key, value) => (key === "size" ? value + 1 : value));
const less = (key, value) => (key === "size" ? value - 1 : value);
check(JSON.stringify(back, less, 1) === json, "JSON");
print("json", json.length, hash(json));

// Replacing, splitting and case in text.
const text = lines.slice(0, 300).join("\n");
const changed = text
  .replace(/(\w+)-(\d+)/g, (_, name, n) => name.toUpperCase() + "#" + (n * 7).toString(36))
  .replace(/%([0-9a-f]{2})/gi, (_, code) => String.fromCharCode(parseInt(code, 16)))
  .split(/[\s\[\]"]+/).filter(Boolean).map((word) => word.padStart(8, "."));
print("changed", changed.length, hash(changed.join("|").normalize("NFD")));
const numbers = [...text.matchAll(/(?<=id=)\d+(?=")/g)].reduce((sum, m) => sum + Number(m[0]), 0);
print("numbers", numbers, encodeURIComponent(lines[7]).length);

// Closures: a memoised edit distance, composed functions, a counter with private state.
function distance(a, b) {
  const memo = {};
  const go = (i, j) => {
    if (i === 0 || j === 0) return i + j;
    const key = i * 64 + j;
    return memo[key] ??= a[i - 1] === b[j - 1] ? go(i - 1, j - 1)
      : 1 + Math.min(go(i - 1, j), go(i, j - 1), go(i - 1, j - 1));
  };
  return go(a.length, b.length);
}
let total = 0;
for (let i = 0; i < 12; i++) total += distance(lines[i].slice(0, 40), lines[i + 20].slice(0, 40));
print("distances", total);
const compose = (...functions) => (x) => functions.reduceRight((value, f) => f(value), x);
const chain = compose((x) => x % 1009, (x) => x * 3 + 1, (x) => x ^ 0x55);
let state = 1;
for (let i = 0; i < 3000; i++) state = chain(state + i);
print("chain", state, [0.1 + 0.2, 1e21, -1 / 3, 123.456].map((x) => x.toFixed(4)).join(" "));

// Errors that are caught, and prototypes.
function Shape(side) { this.side = side; }
Shape.prototype.area = function () { return this.side * this.side; };
function Box(side) { Shape.call(this, side); }
Box.prototype = Object.create(Shape.prototype, { constructor: { value: Box } });
Box.prototype.volume = function () { return this.area() * this.side; };
let caught = 0, volume = 0;
for (let i = 0; i < 600; i++) {
  try {
    if (i % 7 === 0) null.missing;
    if (i % 11 === 0) throw new RangeError("eleven");
    volume += new Box(i % 13).volume();
  } catch (error) {
    caught += error instanceof TypeError ? 1 : 100;
  } finally {
    volume += 1;
  }
}
print("caught", caught, "volume", volume);
