-- Numbers and the compiler: chunks are written out, compiled, dumped, loaded again, and run.
local state = 2024
local function random(below)
  state = (state * 1103515245 + 12345) % 2147483648
  return state // 65536 % below
end

local integer_operators = { "+", "-", "*", "&", "|", "~", "//", "%", "<<", ">>" }
local function expression(depth)
  if depth == 0 then
    local kind = random(4)
    if kind == 0 then return "x" end
    if kind == 1 then return "y" end
    return tostring(random(1000))
  end
  local operator = integer_operators[1 + random(#integer_operators)]
  local left, right = expression(depth - 1), expression(depth - 1)
  if operator == "//" or operator == "%" then right = "(" .. right .. " | 1)" end
  if operator == "<<" or operator == ">>" then right = "(" .. right .. " & 15)" end
  return ("(%s %s %s)"):format(left, operator, right)
end

local template = [[
local x, y = ...
local function first(a) return a + %d end
local t = { k%d = x, [%d] = y, "one", "two", 'three\n\65\x42\u{43}', n = 0x%x }
if x > y then x, y = y, x elseif x == y and not t.k0 then y = first(y) end
for i = 1, 5 do t.n = t.n ~ (i << 2) end
for key, value in pairs({}) do error(key .. value) end
repeat x = x + 1; local done = x >= y until done or x %% 7 == 0
while y %% 5 ~= 0 do y = y - 1; if y < 0 then break end end
goto finish
::finish::
return %s, t.n, first(#t[3]), t[1] < t[2] and x ~= y or -x
]]
local function compile(count)
  local sum = 0
  for i = 1, count do
    local source = template:format(i, i % 10, 10 + i, i, expression(4))
    local chunk = assert(load(source, "=chunk", "t"))
    local again = assert(load(string.dump(chunk, i % 2 == 0), "=dumped", "b"))
    local value, n, length = chunk(i, i * 3)
    local value2, n2, length2 = again(i, i * 3)
    assert(value == value2 and n == n2 and length == length2)
    assert(not load(source .. "end"))
    sum = (sum * 31 ~ value ~ n ~ length) & 0xffffffffffff
  end
  return sum
end

local function sieve(limit)
  local composite, count = {}, 0
  for i = 2, limit do
    if not composite[i] then
      count = count + 1
      for j = i * i, limit, i do composite[j] = true end
    end
  end
  return count
end

local function multiply(a, b)
  local n, c = #a, {}
  for i = 1, n do
    local row, from = {}, a[i]
    for j = 1, n do
      local sum = 0.0
      for k = 1, n do sum = sum + from[k] * b[k][j] end
      row[j] = sum
    end
    c[i] = row
  end
  return c
end

local function matrices(n)
  local a, b = {}, {}
  for i = 1, n do
    a[i], b[i] = {}, {}
    for j = 1, n do a[i][j], b[i][j] = (i * j % 17) / 4, i == j and 2.0 or 0.0 end
  end
  local c, trace = multiply(multiply(a, b), a), 0
  for i = 1, n do trace = trace + c[i][i] end
  return trace
end

local function big_power(base, exponent)
  local digits = { 1 }
  for _ = 1, exponent do
    local carry = 0
    for i = 1, #digits do
      local value = digits[i] * base + carry
      digits[i], carry = value % 10000000, value // 10000000
    end
    while carry > 0 do digits[#digits + 1], carry = carry % 10000000, carry // 10000000 end
  end
  local text = { tostring(digits[#digits]) }
  for i = #digits - 1, 1, -1 do text[#text + 1] = ("%07d"):format(digits[i]) end
  return table.concat(text)
end

local function conversions(count)
  local sum = 0
  for i = 1, count do
    local value = (random(2000) - 1000) / 64
    local text = ("%.6f"):format(value)
    assert(tonumber(text) == value and math.type(value) == "float")
    sum = sum + math.floor(value * 64) + (math.tointeger(value) or 0) + tonumber(tostring(i), 16)
    sum = sum + math.max(i, value) // 1 + math.abs(i - 500) % 3 + math.floor(math.sqrt(i * i))
  end
  return sum
end

math.randomseed(42, 7)
local draws = 0
for _ = 1, 5000 do draws = (draws * 3 + math.random(100) + math.floor(math.random() * 8)) % 65521 end
print("draws", draws)
print("compile", compile(260))
print("sieve", sieve(25000))
print("matrices", ("%.3f"):format(matrices(28)))
local power = big_power(7, 500)
print("power", #power, power:sub(1, 12), power:sub(-12), tonumber(power:sub(1, 15)) % 97)
print("conversions", ("%.0f"):format(conversions(6000)))
print("limits", math.maxinteger + 1 == math.mininteger, 7 // -2, -7 % 3, 7.5 // 2, 1e15, 2^53)
