// A network with name servers that is all in memory.
#ifndef NETWORK_H
#define NETWORK_H

#include <ares.h>

enum { NETWORK_SOCKETS = 64, NETWORK_FIRST = 100 };

extern const struct ares_socket_functions_ex network_functions;

// Whether a socket is open and is readable or, if it is TCP, may be written to.
int network_ready(int socket);
// How many messages came to the servers.
extern unsigned network_asked;

#endif
