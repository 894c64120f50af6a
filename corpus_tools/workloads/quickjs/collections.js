// Classes, generators, promises, Map and Set, typed arrays, BigInt, Proxy and destructuring.
"use strict";

function check(condition, what) {
  if (!condition) throw new Error("wrong: " + what);
}

function* randoms(seed) {
  for (;;) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    yield seed >>> 4;
  }
}
const stream = randoms(77);
const random = (limit) => stream.next().value % limit;

// A heap by a class with private fields, and Dijkstra's algorithm over a grid of weights.
class Heap {
  #items = [];
  get size() { return this.#items.length; }
  push(cost, node) {
    const items = this.#items;
    let i = items.push([cost, node]) - 1;
    while (i > 0) {
      const up = (i - 1) >> 1;
      if (items[up][0] <= items[i][0]) break;
      [items[up], items[i]] = [items[i], items[up]];
      i = up;
    }
  }
  pop() {
    const items = this.#items, top = items[0], last = items.pop();
    if (items.length > 0) {
      items[0] = last;
      for (let i = 0; ;) {
        let least = i;
        for (const child of [2 * i + 1, 2 * i + 2])
          if (child < items.length && items[child][0] < items[least][0]) least = child;
        if (least === i) break;
        [items[least], items[i]] = [items[i], items[least]];
        i = least;
      }
    }
    return top;
  }
}

const side = 24;
const weights = Uint8Array.from({ length: side * side }, () => 1 + random(9));
function* neighbours(node) {
  const x = node % side, y = (node / side) | 0;
  if (x > 0) yield node - 1;
  if (x < side - 1) yield node + 1;
  if (y > 0) yield node - side;
  if (y < side - 1) yield node + side;
}
function cheapest(from, to) {
  const best = new Map([[from, 0]]), done = new Set(), heap = new Heap();
  heap.push(0, from);
  while (heap.size > 0) {
    const [cost, node] = heap.pop();
    if (node === to) return { cost, seen: done.size };
    if (done.has(node)) continue;
    done.add(node);
    for (const next of neighbours(node)) {
      const sum = cost + weights[next];
      if (sum < (best.get(next) ?? Infinity)) {
        best.set(next, sum);
        heap.push(sum, next);
      }
    }
  }
}
const { cost, seen } = cheapest(0, side * side - 1);
check(cost === cheapest(side * side - 1, 0).cost + weights[side * side - 1] - weights[0], "paths");
print("cheapest", cost, seen);

// BigInt: factorials, a modular power, the digits of e.
let factorial = 1n;
for (let i = 2n; i <= 250n; i++) factorial *= i;
const digits = factorial.toString();
check(BigInt(digits) === factorial, "digits");
function power(base, exponent, modulus) {
  let result = 1n;
  for (; exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) result = (result * base) % modulus;
    base = (base * base) % modulus;
  }
  return result;
}
const mersenne = (1n << 127n) - 1n;
check(power(3n, mersenne - 1n, mersenne) === 1n, "Fermat");
let e = 0n, term = 10n ** 120n;
for (let k = 1n; term > 0n; k++) { e += term; term /= k; }
print("bigint", digits.length, digits.slice(0, 20), e.toString().slice(95, 115));

// Typed arrays and views: a matrix product, bytes in both orders, sorting.
const n = 20;
const a = Float64Array.from({ length: n * n }, () => random(100));
const b = Int32Array.from({ length: n * n }, () => random(100) - 50);
const product = new Float64Array(n * n);
for (let i = 0; i < n; i++)
  for (let j = 0; j < n; j++)
    for (let k = 0; k < n; k++) product[i * n + j] += a[i * n + k] * b[k * n + j];
const trace = product.filter((_, i) => i % (n + 1) === 0).reduce((x, y) => x + y, 0);
const buffer = new ArrayBuffer(4096), view = new DataView(buffer);
for (let i = 0; i < 1024; i++) view.setUint32(4 * i, random(1 << 28), i % 2 === 0);
const words = new Uint16Array(buffer).slice().sort();
let xor = 0;
for (const word of words.subarray(100, 1900)) xor = (xor * 31 + word) >>> 0;
print("typed", trace, xor, new Uint8Array(buffer).fill(7, 10, 20).indexOf(7));

// Inheritance with getters, static members and symbols; a proxy that counts.
class Vector {
  static made = 0;
  constructor(...parts) { this.parts = parts; Vector.made++; }
  get length() { return this.parts.length; }
  [Symbol.iterator]() { return this.parts[Symbol.iterator](); }
  plus(other) { return new this.constructor(...this.parts.map((x, i) => x + other.parts[i])); }
  toString() { return `<${this.parts.join(",")}>`; }
}
class Ring extends Vector {
  constructor(...parts) { super(...parts.map((x) => ((x % 97) + 97) % 97)); }
  toString() { return "ring" + super.toString(); }
}
let sum = new Ring(0, 0, 0);
for (let i = 0; i < 500; i++) sum = sum.plus(new Ring(random(1000), -i, i * i));
let reads = 0;
const counted = new Proxy({ x: 1, y: 2 }, {
  get: (target, key) => (reads++, Reflect.get(target, key)),
  has: (target, key) => key.startsWith("x"),
});
for (let i = 0; i < 300; i++) sum.parts[0] += counted.x - ("y" in counted ? counted.y : 0);
print("vectors", String(sum), Vector.made, reads, Math.max(...sum));

// Maps of strings, sets of objects, weak maps, and a stable order of insertion.
const tally = new Map();
for (let i = 0; i < 4000; i++) {
  const key = "k" + (random(1000) % 173);
  tally.set(key, (tally.get(key) ?? 0) + 1);
}
for (const key of [...tally.keys()]) if (tally.get(key) % 2) tally.delete(key);
const objects = Array.from({ length: 300 }, (_, i) => ({ i }));
const weak = new WeakMap(objects.map((object) => [object, object.i * 2]));
const unique = new Set([...objects, ...objects].filter((object) => weak.get(object) % 3));
print("maps", tally.size, [...tally].slice(0, 3).join(" "), unique.size);

// Promises and async functions, whose order is defined.
const order = [];
async function worker(name, steps) {
  for (let i = 0; i < steps; i++) {
    order.push(name + i);
    await null;
  }
  if (name === "c") throw new Error("stopped");
  return steps;
}
async function* countdown(from) { while (from > 0) yield from--; }
(async () => {
  const results = await Promise.allSettled([worker("a", 5), worker("b", 9), worker("c", 3)]);
  let down = 0;
  for await (const value of countdown(60)) down = down * 3 % 1000003 + value;
  check(results[2].reason.message === "stopped", "reason");
  print("async", order.join(""), results.map((r) => r.status[0]).join(""), down);
})();
