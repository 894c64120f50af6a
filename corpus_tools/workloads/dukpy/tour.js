// ECMAScript 5 and what Duktape has beyond it: a little language, its parser and its machine; then
// text, regular expressions, JSON, exceptions, getters, coroutines and buffers. (Duktape's own sort
// takes its pivots from the clock; the sort here is our own.)
var left;

(function () {
  "use strict";

  var seed = 99;
  function random(limit) {
    seed = (seed * 69069 + 1) % 4294967296;
    return Math.floor(seed / 256) % limit;
  }

  function hash(text) {
    var h = 5381;
    for (var i = 0; i < text.length; i++) h = ((h << 5) + h + text.charCodeAt(i)) | 0;
    return (h >>> 0).toString(16);
  }

  function check(condition, what) {
    if (!condition) throw new Error("wrong: " + what);
  }

  // Expressions are made at random, split by a regular expression, parsed by descent, turned into
  // code for a machine with a stack, and run; eval() must agree.
  function make(depth) {
    if (depth === 0 || random(5) === 0) return String(1 + random(99));
    var operator = "+-*%".charAt(random(4));
    return "(" + make(depth - 1) + " " + operator + " " + make(depth - 1) + ")";
  }

  function Parser(text) {
    this.tokens = text.match(/\d+|[-+*%()]/g);
    this.at = 0;
  }
  Parser.prototype.next = function () { return this.tokens[this.at++]; };
  Parser.prototype.parse = function () {
    var token = this.next();
    if (token !== "(") return { type: "number", value: parseInt(token, 10) };
    var node = { type: "operator", first: this.parse() };
    node.name = this.next();
    node.second = this.parse();
    check(this.next() === ")", "parenthesis");
    return node;
  };

  function emit(node, code) {
    if (node.type === "number") {
      code.push(node.value);
    } else {
      emit(node.first, code);
      emit(node.second, code);
      code.push(node.name);
    }
    return code;
  }

  var operations = {
    "+": function (a, b) { return a + b; },
    "-": function (a, b) { return a - b; },
    "*": function (a, b) { return a * b; },
    "%": function (a, b) { return a % b; },
  };
  function execute(code) {
    return code.reduce(function (stack, item) {
      if (typeof item === "number") return stack.push(item), stack;
      var b = stack.pop(), a = stack.pop();
      return stack.push(operations[item](a, b)), stack;
    }, []).pop();
  }

  var values = [], trees = [];
  for (var i = 0; i < 60; i++) {
    var text = make(5), tree = new Parser(text).parse();
    var value = execute(emit(tree, []));
    var expected = (0, eval)(text);
    check(value === expected || (value !== value && expected !== expected), text);
    values.push(value);
    trees.push(tree);
  }
  print("values", values.length, hash(values.join(" ")));
  left = { trees: trees.slice(0, 20), values: values };

  // JSON there and back; all three of Duktape's ways.
  var json = JSON.stringify(trees);
  check(JSON.stringify(JSON.parse(json)) === json, "JSON");
  print("json", json.length, hash(json), Duktape.enc("jx", { a: NaN, b: [undefined, "ä"] }));

  // Words: a table, sorted by two keys, and replacing with a function.
  var syllables = ["ka", "to", "mi", "ru", "ne", "so", "lä"], words = [], table = {};
  for (i = 0; i < 1500; i++) {
    var word = "";
    for (var k = 1 + random(3); k > 0; k--) word += syllables[random(syllables.length)];
    words.push(word);
    table[word] = (table[word] || 0) + 1;
  }
  function sorted(list, before) {
    if (list.length < 2) return list;
    var middle = list.length >> 1, result = [];
    var a = sorted(list.slice(0, middle), before), b = sorted(list.slice(middle), before);
    while (a.length && b.length) result.push(before(b[0], a[0]) ? b.shift() : a.shift());
    return result.concat(a, b);
  }
  var common = sorted(Object.keys(table), function (a, b) {
    return table[a] > table[b] || (table[a] === table[b] && a < b);
  });
  print("words", common.length, common.slice(0, 5).join(","), hash(common.join(",")));
  var ending = /\b([a-z])([a-z]*)(ka|to)\b/g;
  var page = words.slice(0, 600).join(" ").replace(ending, function (all, first, rest) {
    return first.toUpperCase() + rest + "~" + all.length;
  });
  print("page", page.length, hash(page), page.split(/[~ ](?=[A-Z])/).length);

  // Numbers in text, dates at given moments, arrays by their methods.
  var printed = [];
  for (i = 1; i < 120; i++) {
    var x = i * 1234.5678 / (1 + random(50));
    printed.push(x.toFixed(3), x.toExponential(2), (i * 7919).toString(2 + i % 35));
    check(parseFloat(String(x)) === x, "number " + x);
  }
  print("numbers", hash(printed.join(" ")), new Date(Date.UTC(2001, 1, 3, 4, 5, 6)).toISOString());
  var squares = words.map(function (w, at) { return at * w.length; })
    .filter(function (n) { return n % 3 === 1; });
  print("arrays", sum.apply(null, squares.slice(0, 200)), squares.indexOf(squares[177]));

  // Exceptions, getters, frozen objects and bound functions.
  var caught = 0, point = Object.freeze({ get norm() { return this.x + this.y; }, x: 3, y: 4 });
  for (i = 0; i < 300; i++) {
    try {
      if (i % 3 === 0) point.x = i;
      else if (i % 5 === 0) sum(1, "two");
      else if (i % 7 === 0) JSON.parse("{\"a\":}");
      caught += point.norm;
    } catch (error) {
      caught += error instanceof TypeError ? 1000 : 100000;
    } finally {
      caught++;
    }
  }
  var bound = operations["-"].bind(null, 50);
  print("caught", caught, [1, 2, 3].map(function (n) { return bound(n); }).join(" "));

  // A coroutine that yields primes, and bytes in a buffer.
  var sieve = new Duktape.Thread(function (limit) {
    var composite = new Uint8Array(limit);
    for (var p = 2; p < limit; p++) {
      if (composite[p]) continue;
      Duktape.Thread.yield(p);
      for (var q = p * p; q < limit; q += p) composite[q] = 1;
    }
    return 0;
  });
  var primes = [], prime = Duktape.Thread.resume(sieve, 3000);
  for (; prime; prime = Duktape.Thread.resume(sieve)) primes.push(prime);
  var view = new DataView(new ArrayBuffer(primes.length * 4));
  primes.forEach(function (p, at) { view.setUint32(at * 4, p, at % 2 === 0); });
  var bytes = new Uint8Array(view.buffer), total = 0;
  for (i = 0; i < bytes.length; i++) total = (total * 33 + bytes[i]) % 1000003;
  print("primes", primes.length, primes[primes.length - 1], total,
    Duktape.enc("hex", bytes.subarray(0, 8)));
})();
