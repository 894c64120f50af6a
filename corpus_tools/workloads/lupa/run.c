// Runs the Lua script that its argument names, with all of Lua's libraries, in a state whose
// strings are hashed the same way each time.
#include "third-party/lua54/lauxlib.h"
#include "third-party/lua54/lstate.h"
#include "third-party/lua54/lualib.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// Sorting chooses some pivots by the clock: it stands still.
clock_t clock(void) { return 0; }
time_t time(time_t *result) { return result ? (*result = 0) : 0; }

// Lua takes its seed from addresses and the clock as soon as it has memory for the state, and
// hashes nothing before it asks for more memory: that is when the seed is replaced.
static void *allocate(void *calls, void *block, size_t old_size, size_t new_size) {
  static void *state;
  (void)old_size;
  if (++*(int *)calls == 2) {
    lua_State *lua = (lua_State *)((char *)state + LUA_EXTRASPACE);
    G(lua)->seed = 42;
  }
  if (new_size == 0) {
    free(block);
    return NULL;
  }
  void *result = realloc(block, new_size);
  if (*(int *)calls == 1)
    state = result;
  return result;
}

int main(int argc, char **argv) {
  int calls = 0;
  lua_State *lua = lua_newstate(allocate, &calls);
  if (argc != 2 || lua == NULL)
    return 2;
  luaL_openlibs(lua);
  if (luaL_dofile(lua, argv[1]) != LUA_OK) {
    fprintf(stderr, "%s\n", lua_tostring(lua, -1));
    return 1;
  }
  lua_close(lua);
  return 0;
}
