// Text, hexadecimal patterns and regular expressions, with most modifiers.
rule words : text {
  meta:
    about = "plain words"
    level = 3
  strings:
    $a = "invoice"
    $b = "secret" nocase fullword
    $c = "wide" wide ascii
    $d = "Password: " private
  condition:
    2 of ($a, $b, $c) and #d > 10
}
rule disguised {
  strings:
    $xored = "secret and spam" xor(1-31)
    $coded = "SECRET" base64 base64wide
    $either = "user00" ascii wide nocase
  condition:
    any of them
}
rule hexadecimal {
  strings:
    $magic = { de c0 ed fe ?? 0? 00 00 }
    $jump = { 63 6d 64 [1-6] 2f ( 63 | 6b ) }
    $nested = { 4d ( 5a | 5? 00 [2] 01 ) [0-200] 50 45 00 00 }
    $negated = { 61 61 ~00 61 ~62 62 }
    $far = { 7f 45 4c 46 [4-64] 3e 00 }
  condition:
    any of them
}
rule addresses {
  strings:
    $mail = /[a-z0-9_.]{2,20}@[a-z]+\.(com|org)/
    $link = /https?:\/\/[a-z.]{3,30}\/[^\s"]{1,40}/ nocase
    $number = /\b(25[0-5]|1?\d{1,2})(\.(25[0-5]|1?\d{1,2})){3}\b/
    $date = /20\d\d-(0[1-9]|1[0-2])-[0-3][0-9]/ fullword
    $pair = /"\w+": *"[^"]*"/
  condition:
    3 of them
}
rule greedy {
  strings:
    $repeat = /(abc)+/
    $lazy = /aa*?b/
    $many = /a{3,5}b|x+y{2}/
    $class = /[\x80-\xff]{6}\x00[^\x00-\x1f]/
    $dots = /eval\(.{0,12}\(/s
  condition:
    #repeat > 1 or #lazy > 4 or $many or #class > 2 or $dots
}
rule accounts {
  strings:
    $user = /user\d{4}:[0-9a-f]{8}/
    $exact = /user[0-4]\d{3}:0{3}[0-9a-f]+/
  condition:
    #user > 900 and #exact in (0..20000) > 3 and !user[1] == 17
}
rule placed {
  strings:
    $start = "MZ"
    $elf = "\x7fELF"
    $symbol = "symbol_"
    $function = /Function[AW]\d{1,2}/
  condition:
    $start at 0 or ($elf at 0 and #symbol == 63) or for all i in (1..#function) : (@function[i] > 0x1400)
}
rule windows {
  strings:
    $a = "connect"
    $b = "eval("
    $c = "cmd.exe"
  condition:
    for any i in (1..#b) : (
      for any j in (1..#a) : (@a[j] - @b[i] < 60 and @a[j] > @b[i]) and $c in (@b[i] - 200..@b[i] + 200)
    )
}
private rule hidden {
  strings:
    $zeros = { 00 00 00 00 }
  condition:
    $zeros
}
rule depends {
  condition:
    hidden and not words and filesize > 60KB
}
