/* The library's part in what a project file is for. Clang hands a module to LLVM's pipeline by a
 * function of libLLVM's, which is found here first; before it goes on, inline functions that no other
 * object of the project has become local. LLVM then knows all their calls, and drops them with the
 * last one.
 *
 * Left as they are: functions of which a copy is elsewhere in the project; all of a COMDAT of which
 * anything else has to stay; functions whose address may be compared with that of another library's
 * copy, or whose name somebody has to find (__attribute__((used)), assembly, what is exported). */
#define _GNU_SOURCE
#include "inside.h"
#include "project.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RUN "_ZN4llvm11PassManagerINS_6ModuleENS_15AnalysisManagerIS1_JEEEJEE3runERS1_RS3_"
#define INSTEAD_OF(name) __asm__(name) __attribute__((visibility("default")))
#ifdef __clang__
#define SAME_CALL __attribute__((musttail))
#else
#define SAME_CALL
#endif

/* What LLVM returns in memory (`PreservedAnalyses`); it is never copied. */
struct preserved {
  void *words[16];
};
struct preserved run_instead(void *manager, void *module, void *analyses) INSTEAD_OF(RUN);

typedef void *value;

/* llvm-c/Core.h, llvm-c/Comdat.h */
enum { LINK_ONCE_ODR = 3, INTERNAL = 8, HIDDEN = 1, GLOBAL_UNNAMED_ADDRESS = 2 };
#define FUNCTIONS(_)                                                                               \
  _(value, GetFirstFunction, (void *))                                                             \
  _(value, GetNextFunction, (value))                                                               \
  _(value, GetFirstGlobal, (void *))                                                               \
  _(value, GetNextGlobal, (value))                                                                 \
  _(value, GetNamedGlobal, (void *, const char *))                                                 \
  _(value, GetFirstGlobalAlias, (void *))                                                          \
  _(value, GetNextGlobalAlias, (value))                                                            \
  _(value, AliasGetAliasee, (value))                                                               \
  _(const char *, GetModuleInlineAsm, (void *, size_t *))                                          \
  _(const char *, GetTarget, (void *))                                                             \
  _(const char *, GetValueName2, (value, size_t *))                                                \
  _(int, IsDeclaration, (value))                                                                   \
  _(int, GetLinkage, (value))                                                                      \
  _(void, SetLinkage, (value, int))                                                                \
  _(int, GetVisibility, (value))                                                                   \
  _(int, GetUnnamedAddress, (value))                                                               \
  _(void *, GetComdat, (value))                                                                    \
  _(void, SetComdat, (value, void *))                                                              \
  _(value, GetFirstUse, (value))                                                                   \
  _(value, GetNextUse, (value))                                                                    \
  _(value, GetUser, (value))                                                                       \
  _(value, IsAConstant, (value))                                                                   \
  _(value, IsAFunction, (value))                                                                   \
  _(value, IsAGlobalAlias, (value))                                                                \
  _(value, IsAGlobalVariable, (value))                                                             \
  _(value, IsABlockAddress, (value))                                                               \
  _(value, IsACallInst, (value))                                                                   \
  _(value, IsAInvokeInst, (value))                                                                 \
  _(value, GetCalledValue, (value))                                                                \
  _(unsigned, GetNumArgOperands, (value))                                                          \
  _(value, GetOperand, (value, unsigned))

#define MEMBER(result, name, arguments) result(*name) arguments;
static struct {
  FUNCTIONS(MEMBER)
} llvm;

static bool find_functions(void) {
#define FIND(result, name, arguments)                                                              \
  if (!(*(void **)&llvm.name = dlsym(RTLD_DEFAULT, "LLVM" #name)))                                 \
    return false;
  FUNCTIONS(FIND)
  return true;
}

bool can_make_local(void) { return find_functions() && dlsym(RTLD_NEXT, RUN); }

static const uint64_t *hashes;

static const char *name_of(value value, size_t *length) {
  const char *name = llvm.GetValueName2(value, length);
  bool is_verbatim = *length && name[0] == '\1';
  *length -= is_verbatim;
  return name + is_verbatim;
}

static bool is_shared(value value) {
  struct digest digest;
  uint8_t result[DIGEST_BYTES];
  uint64_t hash = 0;
  size_t length, first = 0, last = page->shared.count;
  const char *name = name_of(value, &length);
  begin_digest(&digest);
  add_to_digest(&digest, name, length);
  end_digest(&digest, result);
  for (size_t index = 0; index < HASH_BITS / 8; ++index)
    hash = hash << 8 | result[index];
  while (first < last) {
    size_t middle = (first + last) / 2;
    if (hashes[middle] == hash)
      return true;
    if (hashes[middle] < hash)
      first = middle + 1;
    else
      last = middle;
  }
  return false;
}

/* Tables of virtual functions: whose copy of one is called, nobody can tell. */
static bool is_table(value variable) {
  size_t length;
  const char *name = name_of(variable, &length);
  return length > 4 && (!memcmp(name, "_ZTV", 4) || !memcmp(name, "_ZTC", 4));
}

static bool is_llvms(value variable) {
  size_t length;
  const char *name = name_of(variable, &length);
  return length > 5 && !memcmp(name, "llvm.", 5);
}

static bool is_only_called(value call, value function) {
  if (!(llvm.IsACallInst(call) || llvm.IsAInvokeInst(call)) ||
      llvm.GetCalledValue(call) != function)
    return false;
  for (unsigned index = 0; index < llvm.GetNumArgOperands(call); ++index)
    if (llvm.GetOperand(call, index) == function)
      return false;
  return true;
}

/* Whether none of a value's uses keeps the function, which it is or is made of, as it is. */
static bool is_free(value used, value function, bool has_address) {
  for (value use = llvm.GetFirstUse(used); use; use = llvm.GetNextUse(use)) {
    value user = llvm.GetUser(use);
    bool is_good = !has_address;
    if (llvm.IsAGlobalVariable(user))
      is_good = !is_llvms(user) && (is_table(user) || !has_address);
    else if (llvm.IsAGlobalAlias(user) || llvm.IsABlockAddress(user))
      is_good = true; /* an alias has uses of its own */
    else if (llvm.IsAFunction(user))
      is_good = false;
    else if (llvm.IsAConstant(user))
      is_good = is_free(user, function, has_address);
    else if (is_only_called(user, function))
      is_good = true;
    if (!is_good)
      return false;
  }
  return true;
}

/* Whether assembly has the name anywhere. */
static bool is_in(const char *assembly, size_t size, value value) {
  size_t length;
  const char *name = name_of(value, &length);
  return size && memmem(assembly, size, name, length);
}

struct member {
  void *comdat;
  value value;
  bool is_function, can_be_local;
};

struct members {
  struct member *all;
  size_t count, capacity;
  const char *assembly;
  size_t assembly_bytes;
};

static bool can_be_local(const struct members *members, value value) {
  int linkage = llvm.GetLinkage(value);
  return linkage == LINK_ONCE_ODR &&
         (!page->shared.is_exported || llvm.GetVisibility(value) == HIDDEN) && !is_shared(value) &&
         !is_in(members->assembly, members->assembly_bytes, value) &&
         is_free(value, value, llvm.GetUnnamedAddress(value) != GLOBAL_UNNAMED_ADDRESS);
}

static void add_member(struct members *members, value value, void *comdat, bool is_function,
                       bool can_be_local) {
  if (members->count == members->capacity) {
    members->capacity = 2 * members->capacity + 256;
    members->all = realloc(members->all, members->capacity * sizeof *members->all);
    if (!members->all)
      abort();
  }
  members->all[members->count++] = (struct member){comdat, value, is_function, can_be_local};
}

static void add_members(struct members *members, void *module) {
  for (value each = llvm.GetFirstFunction(module); each; each = llvm.GetNextFunction(each))
    if (!llvm.IsDeclaration(each) && llvm.GetComdat(each))
      add_member(members, each, llvm.GetComdat(each), true, can_be_local(members, each));
  for (value each = llvm.GetFirstGlobal(module); each; each = llvm.GetNextGlobal(each))
    if (llvm.GetComdat(each))
      add_member(members, each, llvm.GetComdat(each), false, false);
  for (value each = llvm.GetFirstGlobalAlias(module); each; each = llvm.GetNextGlobalAlias(each)) {
    value of = llvm.AliasGetAliasee(each);
    if (llvm.IsAFunction(of) && llvm.GetComdat(of))
      add_member(members, each, llvm.GetComdat(of), false, can_be_local(members, each));
  }
}

static int compare_comdats(const void *one, const void *other) {
  const struct member *first = one, *second = other;
  return (first->comdat > second->comdat) - (first->comdat < second->comdat);
}

static void make_local(void *module) {
  struct members members = {0};
  members.assembly = llvm.GetModuleInlineAsm(module, &members.assembly_bytes);
  add_members(&members, module);
  qsort(members.all, members.count, sizeof *members.all, compare_comdats);
  for (size_t first = 0, end; first < members.count; first = end) {
    bool is_whole = true;
    for (end = first; end < members.count && members.all[end].comdat == members.all[first].comdat;)
      is_whole &= members.all[end++].can_be_local;
    for (size_t index = first; index < end && is_whole; ++index) {
      if (members.all[index].is_function)
        llvm.SetComdat(members.all[index].value, NULL);
      llvm.SetLinkage(members.all[index].value, INTERNAL);
    }
  }
  free(members.all);
}

/* Code for something else than this machine's kind has a linker of its own. */
static bool is_for_a_device(const char *target) {
  static const char *const DEVICES[] = {"nvptx", "amdgcn", "spir", "bpf"};
  for (size_t index = 0; index < sizeof DEVICES / sizeof *DEVICES; ++index)
    if (!strncmp(target, DEVICES[index], strlen(DEVICES[index])))
      return true;
  return false;
}

static bool map_hashes(void) {
  static const uint64_t NONE;
  char path[64];
  hashes = &NONE;
  if (!page->shared.count)
    return true;
  snprintf(path, sizeof path, DRIVERS_FILE, (int)page->driver, page->shared.file);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  void *found = mmap(NULL, page->shared.count * sizeof *hashes, PROT_READ, MAP_SHARED, file, 0);
  if (file >= 0)
    close(file);
  hashes = found;
  return found != MAP_FAILED;
}

/* With -gmodules, clang first compiles what is in the object files around its precompiled modules
 * (ObjectFilePCHContainerWriter.cpp). */
static bool is_container(void *module) { return llvm.GetNamedGlobal(module, "__clang_ast"); }

static void look_at_module(void *module) {
  static bool is_done;
  if (is_done || !page || page->shared.file < 0 || !find_functions() ||
      is_for_a_device(llvm.GetTarget(module)) || is_container(module))
    return;
  is_done = true; /* clang has one for each object */
  if (map_hashes())
    make_local(module);
}

struct preserved run_instead(void *manager, void *module, void *analyses) {
  static struct preserved (*next)(void *, void *, void *);
  if (!next)
    *(void **)&next = dlsym(RTLD_NEXT, RUN);
  look_at_module(module);
  SAME_CALL return next(manager, module, analyses);
}
