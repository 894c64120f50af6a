/* What a project file says of an object, on its way to clang's process. */
#ifndef MLGO_PROJECT_H
#define MLGO_PROJECT_H

#include "driver.h"

#define HASH_DIGITS 8 /* of six bits */
#define HASH_BITS 48

/* project.c */
/* What other objects of its targets have in common with an object; no file where it is in none. False
 * where the project file is bad. */
bool find_shared(const char *project, const char *object, struct shared *shared,
                 struct message *message);
/* Tells what the whole file holds. */
bool digest_of_project(const char *project, char *hex, struct message *message);
/* Tells what it says of an object; false where it has nothing to say. */
bool digest_of_object(const char *project, const char *object, char *hex, struct message *message);

#endif
