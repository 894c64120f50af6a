// Modules and expressions: executables' headers, statistics, digests, loops and arithmetic.
import "console"
import "elf"
import "hash"
import "math"
import "pe"
import "string"
import "time"

global rule every {
  condition:
    filesize == 64KB and kind >= 0 and label matches /^[a-z]{4,}$/
}
rule portable {
  condition:
    pe.is_pe and pe.machine == pe.MACHINE_I386 and pe.number_of_sections == 3 and
    pe.sections[1].name == ".rdata" and pe.imports("kernel32.dll") > 4 and
    console.log("imports ", pe.number_of_imported_functions) and console.log(pe.imphash())
}
rule libraries {
  condition:
    for any library in pe.import_details : (
      library.library_name icontains "ws2" and
      for 4 function in library.functions : (function.name startswith "Function")
    ) and pe.imports(/advapi32/i, /FunctionA\d/) > 0 and pe.section_index(".data") == 2 and
    pe.rva_to_offset(0x2010) == 0x1410 and not pe.is_signed
}
rule linkable {
  condition:
    elf.type == elf.ET_EXEC and elf.machine == elf.EM_X86_64 and elf.number_of_sections == 4 and
    for 10 symbol in elf.symtab : (symbol.type == elf.STT_FUNC and symbol.size > 20) and
    console.hex("entry ", elf.entry_point) and console.log(elf.telfhash())
}
rule statistics {
  condition:
    math.entropy(0, filesize) > 4.0 and
    math.in_range(math.mean(0, filesize), 20.0, 140.0) and
    math.serial_correlation(0, filesize) < 0.95 and math.monte_carlo_pi(0, filesize) >= 0.0 and
    math.deviation(0, filesize, math.MEAN_BYTES) > 20.0 and
    console.log("mode ", math.mode()) and math.percentage(0x00, 0, 4096) < 0.99
}
rule digests {
  condition:
    hash.crc32(0, filesize) != hash.checksum32(0, filesize) and
    for 3 i in (0..15) : (hash.md5(i * 4096, 4096) contains "a" and hash.sha1(i * 4096, 256) > "2") and
    console.log(hash.sha256(0, 1024)) and console.hex(hash.crc32(4096, 8192))
}
rule words_of_records {
  condition:
    for 200 i in (0..1023) : (
      uint32(i * 64) == 0xfeedc0de and uint16(i * 64 + 8) % 7 < 5 and
      uint32be(i * 64) ^ 0xdec0edfe == 0 and (uint8(i * 64 + 4) & 0x0f) << 2 <= 60
    )
}
rule arithmetic {
  condition:
    for all i in (1..300) : (
      (i * i + i) % 2 == 0 and (i \ 3) * 3 <= i and (i | 1) >= (i & ~1) and -(-i) == i and
      math.max(i, 7) - math.min(i, 7) == math.abs(i - 7) and
      string.to_int(math.to_string(i)) == i and 2.5 * i > i and (i << 3) >> 3 == i
    ) and not defined pe.sections[900].name
}
rule texts {
  condition:
    for 2 text in ("prose", "program", "pro", label) : (
      label startswith text and string.length(text) > 2 and not text iequals "PRO"
    ) and string.to_int("-0x1f") == -31 and time.now() == 1000000
}
rule counted {
  strings:
    $a1 = "the"
    $a2 = "and"
    $b = "secret" nocase
    $z = { 00 00 }
  condition:
    for any of ($a*) : (# > 300 and @ < 1000) or
    for 2 i in (1, 5, 9, 13) : (@z[i] % 2 == i % 4 - 1 or !z[i] == 2) and
    1 of ($a*) in (0..4096) and none of ($b) or
    any of (portable, linkable)
}
