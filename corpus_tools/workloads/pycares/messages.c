// DNS messages with records of every type are written, read, compared, damaged, and taken apart by
// the old functions for single types.
#define SEED 5
#include "common.h"
#include <ares.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned kept, damaged, refused, replies;

static void add_text(const char *text) { add(text, text ? strlen(text) + 1 : 0); }

static void add_number(uint32_t number) { add(&number, sizeof number); }

static const char *name(void) {
  static const char *const labels[] = {
      "www", "mail", "a", "_sip._tcp", "xn--bcher-kva", "ns1", "a-rather-long-label-of-a-name"};
  static const char *const zones[] = {"example.com", "example.net", "sub.example.com", "test"};
  static char text[128];
  snprintf(text, sizeof text, "%s%u.%s", labels[below(7)], below(20), zones[below(4)]);
  return text;
}

static const uint8_t *bytes(size_t size) {
  static uint8_t data[256];
  for (size_t i = 0; i < size; ++i)
    data[i] = "abcdefghij0123456789 .;-"[below(24)];
  data[size] = 0;
  return data;
}

// Sets all that a record of its type has.
static void fill(ares_dns_rr_t *rr) {
  size_t count;
  const ares_dns_rr_key_t *keys = ares_dns_rr_get_keys(ares_dns_rr_get_type(rr), &count);
  for (size_t i = 0; i < count; ++i) {
    struct in_addr four = {htonl(0x0a000000 + below(1 << 16))};
    struct ares_in6_addr six;
    size_t size = 4 + below(40);
    memcpy(&six, bytes(16), 16);
    switch (ares_dns_rr_key_datatype(keys[i])) {
    case ARES_DATATYPE_INADDR:
      check(ares_dns_rr_set_addr(rr, keys[i], &four), "address");
      break;
    case ARES_DATATYPE_INADDR6:
      check(ares_dns_rr_set_addr6(rr, keys[i], &six), "address");
      break;
    case ARES_DATATYPE_U8:
      check(ares_dns_rr_set_u8(rr, keys[i], keys[i] == ARES_RR_OPT_VERSION ? 0 : below(128)), "u8");
      break;
    case ARES_DATATYPE_U16:
      check(ares_dns_rr_set_u16(rr, keys[i], keys[i] == ARES_RR_RAW_RR_TYPE ? 65300 : below(9999)),
            "u16");
      break;
    case ARES_DATATYPE_U32:
      check(ares_dns_rr_set_u32(rr, keys[i], below(1 << 16) * 40503u), "u32");
      break;
    case ARES_DATATYPE_NAME:
      check(ares_dns_rr_set_str(rr, keys[i], name()), "name");
      break;
    case ARES_DATATYPE_STR:
      check(ares_dns_rr_set_str(rr, keys[i], keys[i] == ARES_RR_CAA_TAG ? "issue" : name()),
            "text");
      break;
    case ARES_DATATYPE_BIN:
    case ARES_DATATYPE_BINP:
      check(ares_dns_rr_set_bin(rr, keys[i], bytes(size), size), "bytes");
      break;
    case ARES_DATATYPE_ABINP:
      for (int j = below(3); j >= 0; --j)
        check(ares_dns_rr_add_abin(rr, keys[i], bytes(size), size), "texts");
      break;
    case ARES_DATATYPE_OPT:
      for (int j = 1 + below(4); j >= 1; --j)
        check(ares_dns_rr_set_opt(rr, keys[i], j, bytes(size), size), "option");
    }
  }
}

static ares_dns_record_t *response(const ares_dns_rec_type_t *types, int count, int each) {
  ares_dns_record_t *record;
  ares_dns_rr_t *rr;
  char owner[128];
  strcpy(owner, name());
  check(ares_dns_record_create(&record, below(65536), ARES_FLAG_QR | ARES_FLAG_RD | ARES_FLAG_AA,
                               ARES_OPCODE_QUERY, ARES_RCODE_NOERROR),
        "create");
  check(ares_dns_record_query_add(record, owner, types[0], ARES_CLASS_IN), "question");
  for (int i = 0; i < count * each; ++i) {
    ares_dns_rec_type_t type = types[i / each];
    int section = type == ARES_REC_TYPE_OPT ? 3 : count == 1 ? 1 : 1 + below(3);
    check(ares_dns_record_rr_add(&rr, record, section,
                                 type == ARES_REC_TYPE_OPT ? ""
                                 : count == 1              ? owner
                                                           : name(),
                                 type, ARES_CLASS_IN, below(5000)),
          "add");
    fill(rr);
  }
  return record;
}

// Hashes what a record says, as text where that is how it is read.
static void describe(const ares_dns_rr_t *rr) {
  size_t count, size;
  const ares_dns_rr_key_t *keys = ares_dns_rr_get_keys(ares_dns_rr_get_type(rr), &count);
  add_text(ares_dns_rec_type_tostr(ares_dns_rr_get_type(rr)));
  add_text(ares_dns_rr_get_name(rr));
  add_number(ares_dns_rr_get_ttl(rr));
  for (size_t i = 0; i < count; ++i) {
    char text[64];
    const uint8_t *data;
    add_text(ares_dns_rr_key_tostr(keys[i]));
    switch (ares_dns_rr_key_datatype(keys[i])) {
    case ARES_DATATYPE_INADDR:
      add_text(ares_inet_ntop(AF_INET, ares_dns_rr_get_addr(rr, keys[i]), text, sizeof text));
      break;
    case ARES_DATATYPE_INADDR6:
      add_text(ares_inet_ntop(AF_INET6, ares_dns_rr_get_addr6(rr, keys[i]), text, sizeof text));
      break;
    case ARES_DATATYPE_U8:
      add_number(ares_dns_rr_get_u8(rr, keys[i]));
      break;
    case ARES_DATATYPE_U16:
      add_number(ares_dns_rr_get_u16(rr, keys[i]));
      break;
    case ARES_DATATYPE_U32:
      add_number(ares_dns_rr_get_u32(rr, keys[i]));
      break;
    case ARES_DATATYPE_NAME:
    case ARES_DATATYPE_STR:
      add_text(ares_dns_rr_get_str(rr, keys[i]));
      break;
    case ARES_DATATYPE_OPT:
      for (size_t j = 0; j < ares_dns_rr_get_opt_cnt(rr, keys[i]); ++j) {
        add_text(ares_dns_opt_get_name(keys[i], ares_dns_rr_get_opt(rr, keys[i], j, &data, &size)));
        add(data, size);
      }
      break;
    default:
      data = ares_dns_rr_get_bin(rr, keys[i], &size);
      add(data, size);
    }
  }
}

// Reads a message and writes it again, which must give the same; then reads damaged copies.
static void there_and_back(const uint8_t *message, size_t size) {
  ares_dns_record_t *record;
  uint8_t *again;
  size_t again_size;
  check(ares_dns_parse(message, size, 0, &record), "parse");
  for (int section = 1; section <= 3; ++section)
    for (size_t i = 0; i < ares_dns_record_rr_cnt(record, section); ++i)
      describe(ares_dns_record_rr_get_const(record, section, i));
  check(ares_dns_write(record, &again, &again_size), "write");
  check(size != again_size || memcmp(message, again, size) ? ARES_EBADRESP : 0, "compare");
  ares_dns_record_destroy(record);
  ++kept;
  for (int i = 0; i < 6; ++i) {
    uint32_t at = below(again_size);
    again[at] ^= 1 << below(8);
    record = NULL;
    ++damaged;
    refused += ares_dns_parse(again, again_size - below(2), 0, &record) != ARES_SUCCESS;
    ares_dns_record_destroy(record);
  }
  ares_free_string(again);
}

static void add_host(struct hostent *host) {
  add_text(host->h_name);
  for (char **alias = host->h_aliases; *alias; ++alias)
    add_text(*alias);
  for (char **address = host->h_addr_list; *address; ++address)
    add(*address, host->h_length);
  ares_free_hostent(host);
}

// Gives a message with answers of one type to the function for that type.
static void old_way(ares_dns_rec_type_t type, const uint8_t *message, int size) {
  struct hostent *host = NULL;
  struct ares_mx_reply *mx = NULL;
  struct ares_srv_reply *srv = NULL;
  struct ares_txt_ext *txt = NULL;
  struct ares_naptr_reply *naptr = NULL;
  struct ares_soa_reply *soa = NULL;
  struct ares_caa_reply *caa = NULL;
  struct ares_uri_reply *uri = NULL;
  struct ares_addrttl four[8];
  struct ares_addr6ttl six[8];
  int count = 8;
  void *list = NULL;
  switch (type) {
  case ARES_REC_TYPE_A:
    check(ares_parse_a_reply(message, size, &host, four, &count), "a");
    add_number(four[count - 1].ttl);
    break;
  case ARES_REC_TYPE_AAAA:
    check(ares_parse_aaaa_reply(message, size, &host, six, &count), "aaaa");
    add_number(six[count - 1].ttl);
    break;
  case ARES_REC_TYPE_NS:
    check(ares_parse_ns_reply(message, size, &host), "ns");
    break;
  case ARES_REC_TYPE_PTR:
    check(ares_parse_ptr_reply(message, size, "\12\0\0\1", 4, AF_INET, &host), "ptr");
    break;
  case ARES_REC_TYPE_MX:
    check(ares_parse_mx_reply(message, size, &mx), "mx");
    for (list = mx; mx; mx = mx->next)
      add_text(mx->host);
    break;
  case ARES_REC_TYPE_SRV:
    check(ares_parse_srv_reply(message, size, &srv), "srv");
    for (list = srv; srv; srv = srv->next)
      add_number(srv->port), add_text(srv->host);
    break;
  case ARES_REC_TYPE_TXT:
    check(ares_parse_txt_reply_ext(message, size, &txt), "txt");
    for (list = txt; txt; txt = txt->next)
      add(txt->txt, txt->length);
    break;
  case ARES_REC_TYPE_NAPTR:
    check(ares_parse_naptr_reply(message, size, &naptr), "naptr");
    for (list = naptr; naptr; naptr = naptr->next)
      add_text((char *)naptr->service), add_text(naptr->replacement);
    break;
  case ARES_REC_TYPE_SOA:
    check(ares_parse_soa_reply(message, size, &soa), "soa");
    list = soa;
    add_text(soa->hostmaster);
    break;
  case ARES_REC_TYPE_CAA:
    check(ares_parse_caa_reply(message, size, &caa), "caa");
    for (list = caa; caa; caa = caa->next)
      add(caa->value, caa->length);
    break;
  default:
    check(ares_parse_uri_reply(message, size, &uri), "uri");
    for (list = uri; uri; uri = uri->next)
      add_text(uri->uri);
  }
  if (host)
    add_host(host);
  ares_free_data(list);
  ++replies;
}

static void questions(void) {
  uint8_t *query;
  char *text;
  int size;
  long length;
  check(ares_create_query(name(), ARES_CLASS_IN, ARES_REC_TYPE_MX, below(65536), 1, &query, &size,
                          below(2) * 1232),
        "query");
  add(query, size);
  check(ares_expand_name(query + 12, query, size, &text, &length), "expand");
  add_text(text);
  add_number(length);
  ares_free_string(text);
  ares_free_string(query);
}

int main(void) {
  static const ares_dns_rec_type_t types[] = {
      ARES_REC_TYPE_A,     ARES_REC_TYPE_AAAA,   ARES_REC_TYPE_NS,   ARES_REC_TYPE_PTR,
      ARES_REC_TYPE_MX,    ARES_REC_TYPE_SRV,    ARES_REC_TYPE_TXT,  ARES_REC_TYPE_NAPTR,
      ARES_REC_TYPE_SOA,   ARES_REC_TYPE_CAA,    ARES_REC_TYPE_URI,  ARES_REC_TYPE_CNAME,
      ARES_REC_TYPE_HINFO, ARES_REC_TYPE_SIG,    ARES_REC_TYPE_TLSA, ARES_REC_TYPE_SVCB,
      ARES_REC_TYPE_HTTPS, ARES_REC_TYPE_RAW_RR, ARES_REC_TYPE_OPT};
  check(ares_library_init(ARES_LIB_INIT_ALL), "init");
  for (int round = 0; round < 480; ++round) {
    uint8_t *message;
    size_t size;
    int single = round % 12;
    ares_dns_record_t *record =
        single < 11 ? response(types + single, 1, single == 8 ? 1 : 5) : response(types, 19, 1);
    check(ares_dns_write(record, &message, &size), "write");
    there_and_back(message, size);
    if (single < 11)
      old_way(types[single], message, (int)size);
    questions();
    ares_free_string(message);
    ares_dns_record_destroy(record);
    if (round % 120 == 119)
      printf("kept %u damaged %u refused %u replies %u %08x\n", kept, damaged, refused, replies,
             (unsigned)hash);
  }
  ares_library_cleanup();
  return 0;
}
