// Looks names and addresses up, many at a time, with servers that lose, refuse, and cut answers.
#define SEED 11
#include "common.h"
#include "network.h"
#include "system.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKUPS = 1080, AT_A_TIME = 12, STATUSES = 32 };

static unsigned done, statuses[STATUSES];

static void finish(int status, int timeouts) {
  ++done;
  ++statuses[status % STATUSES];
  add(&status, sizeof status);
  add(&timeouts, sizeof timeouts);
}

static void on_record(void *user, ares_status_t status, size_t timeouts,
                      const ares_dns_record_t *record) {
  (void)user;
  finish((int)status, (int)timeouts);
  for (size_t i = 0; record && i < ares_dns_record_rr_cnt(record, ARES_SECTION_ANSWER); ++i) {
    const ares_dns_rr_t *rr = ares_dns_record_rr_get_const(record, ARES_SECTION_ANSWER, i);
    unsigned ttl = ares_dns_rr_get_ttl(rr);
    add(ares_dns_rr_get_name(rr), strlen(ares_dns_rr_get_name(rr)));
    add(&ttl, sizeof ttl);
  }
}

static void on_addresses(void *user, int status, int timeouts, struct ares_addrinfo *result) {
  (void)user;
  finish(status, timeouts);
  for (struct ares_addrinfo_node *node = result ? result->nodes : NULL; node;
       node = node->ai_next) {
    char text[64];
    const void *address = node->ai_family == AF_INET
                              ? (void *)&((struct sockaddr_in *)node->ai_addr)->sin_addr
                              : (void *)&((struct sockaddr_in6 *)node->ai_addr)->sin6_addr;
    add(text, strlen(ares_inet_ntop(node->ai_family, address, text, sizeof text)));
  }
  ares_freeaddrinfo(result);
}

static void on_host(void *user, int status, int timeouts, struct hostent *host) {
  (void)user;
  finish(status, timeouts);
  if (host == NULL)
    return;
  add(host->h_name, strlen(host->h_name));
  for (char **address = host->h_addr_list; *address; ++address)
    add(*address, host->h_length);
}

static void on_names(void *user, int status, int timeouts, char *node, char *service) {
  (void)user;
  finish(status, timeouts);
  add(node, node ? strlen(node) : 0);
  add(service, service ? strlen(service) : 0);
}

static void start(ares_channel_t *channel) {
  static const char *const known[] = {"printer", "store.test", "nas", "localhost"};
  static const ares_dns_rec_type_t types[] = {ARES_REC_TYPE_A, ARES_REC_TYPE_MX, ARES_REC_TYPE_TXT};
  struct ares_addrinfo_hints hints = {.ai_family = below(3) ? AF_UNSPEC : AF_INET};
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(8080)};
  ares_dns_record_t *record;
  char name[64];
  address.sin_addr.s_addr = htonl(0xc0a80700 + below(40));
  snprintf(name, sizeof name, below(2) ? "n%u" : "n%u.zone%u.example.test", (unsigned)below(300),
           (unsigned)below(4));
  switch (below(6)) {
  case 0:
    ares_query_dnsrec(channel, name, ARES_CLASS_IN, types[below(3)], on_record, NULL, NULL);
    break;
  case 1:
    check(ares_dns_record_create(&record, 0, ARES_FLAG_RD, ARES_OPCODE_QUERY, ARES_RCODE_NOERROR),
          "create");
    check(ares_dns_record_query_add(record, name, types[below(3)], ARES_CLASS_IN), "question");
    ares_search_dnsrec(channel, record, on_record, NULL);
    ares_dns_record_destroy(record);
    break;
  case 2:
    ares_getaddrinfo(channel, below(3) ? name : known[below(4)], "443", &hints, on_addresses, NULL);
    break;
  case 3:
    ares_gethostbyname(channel, below(4) ? name : known[below(4)], AF_INET, on_host, NULL);
    break;
  case 4:
    ares_gethostbyaddr(channel, &address.sin_addr, 4, AF_INET, on_host, NULL);
    break;
  default:
    ares_getnameinfo(channel, (struct sockaddr *)&address, sizeof address,
                     ARES_NI_LOOKUPHOST | ARES_NI_LOOKUPSERVICE | ARES_NI_NUMERICSERV, on_names,
                     NULL);
  }
}

// Lets the channel read and write until nothing is under way; time passes where nothing happens.
static void settle(ares_channel_t *channel) {
  for (int rounds = 0; ares_queue_active_queries(channel) > 0; ++rounds) {
    int busy = 0;
    check(rounds < 10000 ? ARES_SUCCESS : ARES_ETIMEOUT, "settle");
    for (int socket = NETWORK_FIRST; socket < NETWORK_FIRST + NETWORK_SOCKETS; ++socket)
      if (network_ready(socket)) {
        ares_process_fd(channel, socket, socket);
        ++busy;
      }
    if (busy == 0 || rounds % 8 == 7)
      system_wait(100);
    ares_process_fds(channel, NULL, 0, ARES_PROCESS_FLAG_NONE);
  }
}

static ares_channel_t *open_channel(void) {
  ares_channel_t *channel;
  struct ares_options options = {.flags = ARES_FLAG_EDNS | ARES_FLAG_DNS0x20,
                                 .ednspsz = 1232,
                                 .udp_max_queries = 20,
                                 .qcache_max_ttl = 60};
  check(ares_init_options(&channel, &options,
                          ARES_OPT_FLAGS | ARES_OPT_EDNSPSZ | ARES_OPT_UDP_MAX_QUERIES |
                              ARES_OPT_QUERY_CACHE),
        "channel");
  check(ares_set_socket_functions_ex(channel, &network_functions, NULL), "functions");
  return channel;
}

int main(void) {
  check(ares_library_init_mem(ARES_LIB_INIT_ALL, system_allocate, free, realloc), "init");
  ares_channel_t *channel = open_channel();
  char *servers = ares_get_servers_csv(channel);
  printf("servers %s\n", servers);
  ares_free_string(servers);
  for (unsigned asked = 1; asked <= LOOKUPS; ++asked) {
    start(channel);
    if (asked == LOOKUPS / 2)
      check(ares_set_servers_csv(channel, "10.0.0.9,10.0.0.2:5353"), "servers");
    if (asked == LOOKUPS - 3)
      ares_cancel(channel);
    if (asked % AT_A_TIME == 0 || asked == LOOKUPS)
      settle(channel);
    if (asked % (LOOKUPS / 6) == 0)
      printf("asked %u done %u served %u %08x\n", asked, done, network_asked, (unsigned)hash);
  }
  for (int i = 0; i < STATUSES; ++i)
    if (statuses[i])
      printf("%s: %u\n", ares_strerror(i), statuses[i]);
  ares_destroy(channel);
  ares_library_cleanup();
  return done == LOOKUPS ? 0 : 1;
}
