// Name servers in memory: what they answer follows from the name that is asked for.
#include "network.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int open, tcp, family;
  struct sockaddr_storage peer;
  uint8_t in[512], out[8192]; // what is being sent by TCP; answers with their sizes before them
  size_t in_size, out_size;
} Socket;

static Socket sockets[NETWORK_SOCKETS];
unsigned network_asked;

static int fail(int code) {
  errno = code;
  return -1;
}

static void check(ares_status_t status) {
  if (status != ARES_SUCCESS) {
    fprintf(stderr, "server: %s\n", ares_strerror(status));
    exit(1);
  }
}

static uint32_t hashed(const char *text) {
  uint32_t hash = 2166136261u;
  for (; *text; ++text)
    hash = (hash ^ (*text | 32)) * 16777619u;
  return hash;
}

static ares_dns_rr_t *answer(ares_dns_record_t *reply, const char *name, ares_dns_rec_type_t type) {
  ares_dns_rr_t *rr;
  check(ares_dns_record_rr_add(&rr, reply, ARES_SECTION_ANSWER, name, type, ARES_CLASS_IN,
                               30 + hashed(name) % 300));
  return rr;
}

// Adds an alias and up to six records that answer the question.
static void add_answers(ares_dns_record_t *reply, const char *name, ares_dns_rec_type_t type) {
  uint32_t hash = hashed(name);
  char owner[256];
  snprintf(owner, sizeof owner, "%s", name);
  if (hash % 3 == 0) {
    snprintf(owner, sizeof owner, "real%u.hosts.test", (unsigned)(hash % 1000));
    ares_dns_rr_t *alias = answer(reply, name, ARES_REC_TYPE_CNAME);
    check(ares_dns_rr_set_str(alias, ARES_RR_CNAME_CNAME, owner));
  }
  for (uint32_t i = 0; i <= hash % 6; ++i) {
    struct in_addr four = {htonl(0xc0a80000 + (hash + i * 7919) % 65536)};
    struct ares_in6_addr six = {{{0x20, 1, 0xd, 0xb8, i, hash, hash >> 8}}};
    ares_dns_rr_t *rr = answer(reply, owner, type);
    switch (type) {
    case ARES_REC_TYPE_A:
      check(ares_dns_rr_set_addr(rr, ARES_RR_A_ADDR, &four));
      break;
    case ARES_REC_TYPE_AAAA:
      check(ares_dns_rr_set_addr6(rr, ARES_RR_AAAA_ADDR, &six));
      break;
    case ARES_REC_TYPE_MX:
      check(ares_dns_rr_set_u16(rr, ARES_RR_MX_PREFERENCE, 10 * i));
      check(ares_dns_rr_set_str(rr, ARES_RR_MX_EXCHANGE, owner));
      break;
    case ARES_REC_TYPE_PTR:
      check(ares_dns_rr_set_str(rr, ARES_RR_PTR_DNAME, "back.hosts.test"));
      break;
    default:
      check(ares_dns_rr_add_abin(rr, ARES_RR_TXT_DATA, (const uint8_t *)owner, strlen(owner)));
    }
  }
}

// Puts the answer to a question, if there is one, where the socket is read from.
static void serve(Socket *socket, const uint8_t *query, size_t size) {
  ares_dns_record_t *question, *reply;
  ares_dns_rec_type_t type;
  ares_dns_class_t class;
  const char *name;
  uint8_t *message;
  size_t message_size;
  check(ares_dns_parse(query, size, 0, &question));
  check(ares_dns_record_query_get(question, 0, &name, &type, &class));
  uint32_t kind = hashed(name) / 64 % 16;
  int cut = kind == 1 && !socket->tcp;
  ares_dns_rcode_t code = kind == 2 ? ARES_RCODE_NXDOMAIN : kind == 3 ? ARES_RCODE_SERVFAIL : 0;
  check(
      ares_dns_record_create(&reply, ares_dns_record_get_id(question),
                             ARES_FLAG_QR | ARES_FLAG_RD | ARES_FLAG_RA | (cut ? ARES_FLAG_TC : 0),
                             ARES_OPCODE_QUERY, code));
  check(ares_dns_record_query_add(reply, name, type, class));
  if (code == ARES_RCODE_NOERROR && !cut)
    add_answers(reply, name, type);
  check(ares_dns_write(reply, &message, &message_size));
  int lost = kind == 4 && network_asked % 3;
  if (++network_asked && !lost && socket->out_size + message_size + 2 <= sizeof socket->out) {
    socket->out[socket->out_size++] = message_size >> 8;
    socket->out[socket->out_size++] = message_size;
    memcpy(socket->out + socket->out_size, message, message_size);
    socket->out_size += message_size;
  }
  ares_free_string(message);
  ares_dns_record_destroy(reply);
  ares_dns_record_destroy(question);
}

static ares_socket_t net_open(int domain, int type, int protocol, void *user) {
  (void)protocol, (void)user;
  for (int i = 0; i < NETWORK_SOCKETS; ++i)
    if (!sockets[i].open) {
      sockets[i] = (Socket){.open = 1, .tcp = type == SOCK_STREAM, .family = domain};
      return NETWORK_FIRST + i;
    }
  return fail(EMFILE);
}

static int net_close(ares_socket_t socket, void *user) {
  (void)user;
  sockets[socket - NETWORK_FIRST].open = 0;
  return 0;
}

static int net_option(ares_socket_t socket, ares_socket_opt_t option, const void *value,
                      ares_socklen_t size, void *user) {
  (void)socket, (void)option, (void)value, (void)size, (void)user;
  return fail(ENOSYS);
}

static int net_connect(ares_socket_t socket, const struct sockaddr *address, ares_socklen_t size,
                       unsigned flags, void *user) {
  (void)flags, (void)user;
  memcpy(&sockets[socket - NETWORK_FIRST].peer, address, size);
  return 0;
}

static ares_ssize_t net_send(ares_socket_t number, const void *data, size_t size, int flags,
                             const struct sockaddr *address, ares_socklen_t length, void *user) {
  Socket *socket = &sockets[number - NETWORK_FIRST];
  (void)flags, (void)address, (void)length, (void)user;
  if (!socket->tcp) {
    serve(socket, data, size);
    return (ares_ssize_t)size;
  }
  if (size > sizeof socket->in - socket->in_size)
    size = sizeof socket->in - socket->in_size;
  memcpy(socket->in + socket->in_size, data, size);
  socket->in_size += size;
  for (size_t whole; socket->in_size >= 2; socket->in_size -= whole) {
    whole = 2 + (socket->in[0] << 8 | socket->in[1]);
    if (socket->in_size < whole)
      break;
    serve(socket, socket->in + 2, whole - 2);
    memmove(socket->in, socket->in + whole, socket->in_size - whole);
  }
  return (ares_ssize_t)size;
}

// A datagram for UDP; at most a hundred bytes of the stream for TCP.
static ares_ssize_t net_receive(ares_socket_t number, void *data, size_t size, int flags,
                                struct sockaddr *address, ares_socklen_t *length, void *user) {
  Socket *socket = &sockets[number - NETWORK_FIRST];
  size_t skip = socket->tcp ? 0 : 2;
  size_t whole = socket->tcp ? socket->out_size : 2 + (socket->out[0] << 8 | socket->out[1]);
  (void)flags, (void)user;
  if (socket->out_size == 0)
    return fail(EWOULDBLOCK);
  if (socket->tcp && whole > 100)
    whole = 100;
  if (whole > size + skip)
    whole = size + skip;
  memcpy(data, socket->out + skip, whole - skip);
  socket->out_size -= whole;
  memmove(socket->out, socket->out + whole, socket->out_size);
  if (address) {
    *length = socket->family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    memcpy(address, &socket->peer, *length);
  }
  return (ares_ssize_t)(whole - skip);
}

static int net_name(ares_socket_t number, struct sockaddr *address, ares_socklen_t *size,
                    void *user) {
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0a80105)};
  struct sockaddr_in6 six = {.sin6_family = AF_INET6};
  (void)user;
  inet_pton(AF_INET6, "2001:db8:1::5", &six.sin6_addr);
  int is_four = sockets[number - NETWORK_FIRST].family == AF_INET;
  *size = is_four ? sizeof four : sizeof six;
  memcpy(address, is_four ? (void *)&four : (void *)&six, *size);
  return 0;
}

int network_ready(int socket) {
  const Socket *at = &sockets[socket - NETWORK_FIRST];
  return at->open && (at->tcp || at->out_size > 0);
}

const struct ares_socket_functions_ex network_functions = {
    .version = 1,
    .flags = ARES_SOCKFUNC_FLAG_NONBLOCKING,
    .asocket = net_open,
    .aclose = net_close,
    .asetsockopt = net_option,
    .aconnect = net_connect,
    .arecvfrom = net_receive,
    .asendto = net_send,
    .agetsockname = net_name,
};
