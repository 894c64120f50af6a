-- Tables: classes with metatables, closures, sorting, coroutines, weak tables, and errors caught.
local state = 99
local function random(below)
  state = (state * 1103515245 + 12345) % 2147483648
  return state // 65536 % below
end

local Set = {}
Set.__index = Set
Set.__len = function(set) return set.count end
Set.__add = function(a, b)
  local sum = Set.new()
  for value in a:each() do sum:insert(value) end
  for value in b:each() do sum:insert(value) end
  return sum
end
Set.__eq = function(a, b)
  if #a ~= #b then return false end
  for value in a:each() do
    if not b:has(value) then return false end
  end
  return true
end
Set.__call = function(set, value) return set:has(value) end
function Set.new(...)
  local set = setmetatable({ values = {}, count = 0 }, Set)
  for _, value in ipairs({ ... }) do set:insert(value) end
  return set
end
function Set:insert(value)
  if not self.values[value] then
    self.values[value], self.count = true, self.count + 1
  end
end
function Set:has(value) return self.values[value] == true end
function Set:each() return next, self.values end

local Shape = { area = function() return 0 end }
Shape.__index = Shape
local function class(parent, methods)
  methods.__index = methods
  methods.__lt = function(a, b) return a:area() < b:area() end
  return setmetatable(methods, parent)
end
local Square = class(Shape, { area = function(self) return self.side * self.side end })
local Slab = class(Square, { area = function(self) return self.side * self.height end })
local Point = class(Shape, {})

local function shapes(count)
  local list = {}
  for i = 1, count do
    local kind = random(3)
    if kind == 0 then list[i] = setmetatable({ side = random(50) }, Square)
    elseif kind == 1 then list[i] = setmetatable({ side = random(50), height = random(9) }, Slab)
    else list[i] = setmetatable({}, Point) end
  end
  table.sort(list)
  local sum = 0
  for i, shape in ipairs(list) do
    assert(i == 1 or list[i - 1]:area() <= shape:area())
    sum = (sum * 31 + shape:area()) % 1000003
  end
  return sum
end

local function permutations(items)
  local function permute(size)
    if size <= 1 then coroutine.yield(items) end
    for i = 1, size do
      items[size], items[i] = items[i], items[size]
      if size > 1 then permute(size - 1) end
      items[size], items[i] = items[i], items[size]
    end
  end
  return coroutine.wrap(function() permute(#items) end)
end

local function pipeline(limit)
  local function source() for i = 1, limit do coroutine.yield(i) end end
  local function filter(input, keep)
    return coroutine.wrap(function()
      for value in input do
        if keep(value) then coroutine.yield(value) end
      end
    end)
  end
  local stream = coroutine.wrap(source)
  for _, prime in ipairs({ 2, 3, 5, 7 }) do
    stream = filter(stream, function(value) return value % prime ~= 0 end)
  end
  local total = 0
  for value in stream do total = total + value end
  return total
end

local function counters(count)
  local list = {}
  for i = 1, count do
    local value = i
    list[i] = {
      step = function(by) value = value + by; return value end,
      get = function() return value end,
    }
  end
  for i = 1, count * 4 do list[1 + random(count)].step(i % 7) end
  local sum = 0
  for _, counter in ipairs(list) do sum = sum + counter.get() end
  return sum
end

local function risky(depth)
  if depth == 0 then error({ code = random(5) }) end
  local guard <close> = setmetatable({}, { __close = function() state = state ~ 1 end })
  return risky(depth - 1)
end
local function failures(count)
  local codes = { 0, 0, 0, 0, 0 }
  for i = 1, count do
    local fine, problem = pcall(risky, i % 10)
    assert(not fine)
    codes[problem.code + 1] = codes[problem.code + 1] + 1
  end
  local _, text = xpcall(function() local none; return none.field end, function(message)
    return message:gsub("^.-:%d+: ", "")
  end)
  return table.concat(codes, " ") .. " " .. text
end

local function garbage(count)
  local cache = setmetatable({}, { __mode = "v" })
  local closed, kept = 0, {}
  local finalizer = { __gc = function() closed = closed + 1 end }
  for i = 1, count do
    local object = setmetatable({ i, { i } }, finalizer)
    cache[i] = object
    if i % 10 == 0 then kept[#kept + 1] = object end
  end
  collectgarbage()
  local alive = 0
  for _ in pairs(cache) do alive = alive + 1 end
  assert(alive == #kept and closed == count - alive)
  return alive
end

local evens, threes = Set.new(), Set.new(0)
for i = 0, 4000 do evens:insert(random(3000) * 2); threes:insert("k" .. random(900) * 3) end
local both = evens + threes
assert(#both == #evens + #threes and both == threes + evens and both(0) and not both(1))
print("sets", #evens, #threes, #both)
print("shapes", shapes(1500), shapes(700))
local orders, check = 0, 0
for order in permutations({ 1, 2, 3, 4, 5, 6, 7 }) do
  orders, check = orders + 1, (check * 7 + order[1] * 10 + order[7]) % 1000003
end
print("permutations", orders, check)
print("pipeline", pipeline(12000))
print("counters", counters(2500))
print("failures", failures(3000))
collectgarbage("generational")
print("garbage", garbage(6000))
collectgarbage("incremental")
print("garbage", garbage(6000))
local moved = table.move({ table.unpack({ 1, 2, 3, 4, 5, 6 }, 2, 5) }, 1, 4, 3, { 9, 8 })
print("moved", table.concat(moved, ","), select("#", table.unpack(moved)), #table.pack(1, nil, 3))
