// A clock that is set by hand.
#ifndef SYSTEM_H
#define SYSTEM_H

#include <stdint.h>

// Lets some milliseconds pass.
void system_wait(int64_t time);

#endif
