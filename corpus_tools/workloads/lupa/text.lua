-- Strings: words are generated, split, counted, replaced by patterns, packed, and formatted.
local state = 12345
local function random(below)
  state = (state * 1103515245 + 12345) % 2147483648
  return state // 65536 % below
end

local function hash(text)
  local sum = 5381
  for i = 1, #text do
    sum = (sum * 33 ~ text:byte(i)) & 0xffffffff
  end
  return sum
end

local syllables = { "ba", "ko", "ri", "ten", "lu", "mas", "vo", "shi", "per", "na" }
local function word()
  local parts = {}
  for i = 1, 1 + random(4) do
    parts[i] = syllables[1 + random(#syllables)]
  end
  return table.concat(parts)
end

local function paragraph(words)
  local parts = {}
  for i = 1, words do
    local kind = random(12)
    if kind == 0 then
      parts[i] = ("%s@%s.example"):format(word(), word())
    elseif kind == 1 then
      parts[i] = ("%d-%02d-%02d"):format(1900 + random(200), 1 + random(12), 1 + random(28))
    elseif kind == 2 then
      parts[i] = ("%s(%s, %d)"):format(word(), word(), random(1000))
    else
      parts[i] = word()
    end
  end
  return table.concat(parts, " ")
end

local function count_words(text)
  local counts, names = {}, {}
  for name in text:gmatch("%a+") do
    if not counts[name] then
      names[#names + 1] = name
    end
    counts[name] = (counts[name] or 0) + 1
  end
  table.sort(names, function(a, b)
    if counts[a] ~= counts[b] then
      return counts[a] > counts[b]
    end
    return a < b
  end)
  return names, counts
end

local function rewrite(text)
  local dates, calls, mails
  text, dates = text:gsub("(%d+)-(%d%d)-(%d%d)", "%3.%2.%1")
  text, mails = text:gsub("(%w+)@([%w.]+)", function(user, host)
    return "<" .. host:upper() .. ":" .. user:reverse() .. ">"
  end)
  text, calls = text:gsub("(%a+)(%b())", function(name, inner)
    return inner:sub(2, -2) .. "|" .. name:rep(2, "_")
  end)
  local titled = text:gsub("%f[%a]%a", string.upper)
  return titled, dates, calls, mails
end

local function pack_and_unpack(names, counts)
  local packed = {}
  for i, name in ipairs(names) do
    packed[i] = string.pack("<s1i4Bd", name, -counts[name], #name, counts[name] / 8)
  end
  local blob, position = table.concat(packed), 1
  for _, name in ipairs(names) do
    local text, negative, length, eighth
    text, negative, length, eighth, position = string.unpack("<s1i4Bd", blob, position)
    assert(text == name and negative == -counts[name] and length == #name)
    assert(eighth * 8 == counts[name])
  end
  assert(position == #blob + 1)
  return blob
end

local function round_trip_of_codepoints(text)
  local points, changed = {}, {}
  for _, point in utf8.codes(text) do
    points[#points + 1] = point + 0x300
  end
  for i, point in ipairs(points) do
    changed[i] = utf8.char(point)
  end
  local wide = table.concat(changed)
  assert(utf8.len(wide) == #points)
  assert(utf8.codepoint(wide, utf8.offset(wide, #points)) == points[#points])
  return wide
end

for round = 1, 2 do
  local text = paragraph(1800)
  local names, counts = count_words(text)
  local titled, dates, calls, mails = rewrite(text)
  local blob = pack_and_unpack(names, counts)
  local wide = round_trip_of_codepoints(titled)
  print(round, #names, names[1], counts[names[1]], dates, calls, mails)
  print(hash(text), hash(titled), hash(blob), hash(wide))
  local quoted = load("return " .. ("%q"):format(blob))()
  assert(quoted == blob and tostring(#quoted) == ("%d"):format(#blob))
  local at, found = 1, 0
  while true do
    local first, last = titled:find("Ba%w-ri", at)
    if not first then
      break
    end
    at, found = last + 1, found + 1
  end
  print(found, ("%5.2f|%-8s|%08x|%+d"):format(#text / 7, names[2], hash(names[3]), found))
end
