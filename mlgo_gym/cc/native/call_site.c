/* The call that LLVM's inline advisor asks about. Its class's table has the function that asks the
 * model, and is given the call; a policy's code takes that place, and goes on to it. All that is
 * needed is exported by the library that clang shares with LLVM's other tools; a clang that holds
 * LLVM itself has none of it to offer. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_SLOTS 24

static bool put(void **slot, void *function) {
  uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE);
  void *page = (void *)((uintptr_t)slot / size * size);
  if (mprotect(page, size, PROT_READ | PROT_WRITE))
    return false;
  __atomic_store_n(slot, function, __ATOMIC_RELEASE);
  mprotect(page, size, PROT_READ);
  return true;
}

static bool is_llvm(unsigned major) {
  void (*version)(unsigned *, unsigned *, unsigned *) = dlsym(RTLD_DEFAULT, "LLVMGetVersion");
  unsigned found[3] = {0};
  if (version)
    version(&found[0], &found[1], &found[2]);
  return found[0] == major;
}

static bool take_place(const struct mlgo_call_site *site) {
  if (site->llvm_major && !is_llvm(site->llvm_major))
    return false;
  void **table = dlsym(RTLD_DEFAULT, site->symbols[0]);
  void *asks = dlsym(RTLD_DEFAULT, site->symbols[1]);
  if (!table || !asks)
    return false;
  for (size_t number = 2; number < site->symbol_count; ++number)
    if (!(site->functions[number - 2] = dlsym(RTLD_DEFAULT, site->symbols[number])))
      return false;
  *site->asks = asks;
  for (size_t slot = 0; slot < MOST_SLOTS; ++slot)
    if (table[slot] == asks)
      return put(&table[slot], site->take_call);
  return false;
}

bool know_calls(const struct mlgo_call_site *site) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static const struct mlgo_call_site *known;
  pthread_mutex_lock(&mutex);
  if (!known && take_place(site))
    known = site;
  bool is_known = known == site;
  pthread_mutex_unlock(&mutex);
  return is_known;
}
