/* mlgo-cc: a compiler driver in front of clang that answers LLVM's questions with a policy.
 *
 *   settings.c   what the user asked for: options, environment, configuration file
 *   arguments.c  what clang's command line means for us
 *   digest.c     BLAKE2b
 *   kept.c       the files that are kept between compilations, and why they may be trusted
 *   cache.c      which clang it is, and its version
 *   model.c      the policy of a model's files
 *   policy.c     a policy bound to what LLVM says it sends
 *   channel.c    the stream from LLVM: headers, contexts, observations
 *   command.c    clang's command line with what is added to it
 *   streams.c    standard input, and what clang says, in memory
 *   serve.c      the server process: clang's parent, which answers and cleans up
 *   main.c       the process that the build started: waits, and falls back to plain clang
 */
#ifndef MLGO_DRIVER_H
#define MLGO_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "policy.h"

#define MINIMUM_CLANG 19
#define MESSAGE_BYTES 1024

enum problem { INLINING, REGALLOC, PROBLEM_COUNT };

/* What LLVM calls a problem's switches. */
struct problem_flags {
  const char *name;            /* as users say it */
  const char *enable;          /* the option that hands the heuristic out */
  const char *channel;         /* the option that names the channel */
  const char *include_default; /* the option that adds LLVM's own answer; or NULL */
  const char *default_name;    /* the feature that holds it; or NULL */
  const char *mask;            /* the feature that says which answers are legal; or NULL */
};
extern const struct problem_flags PROBLEMS[PROBLEM_COUNT];

struct settings {
  bool is_cxx;
  bool is_strict;
  double timeout_s;                  /* of silence while a channel is open */
  const char *clang;                 /* what the user named; or NULL */
  const char *models[PROBLEM_COUNT]; /* folders; NULL leaves the problem to LLVM */
  const char *ir2vec;                /* a vocabulary in place of the inliner's own; or NULL */
  const char *threshold;             /* growth at which the inline advisor stops asking; or NULL */
  const char *model_under_training;  /* development mode; or NULL */
  const char *training_log;
  bool wants_fingerprint;
  char **arguments; /* clang's, from [1]; NULL-terminated */
  size_t argument_count;
};

/* What is done with a command line. */
enum action { PASS_ON, ADVISE_COMPILATION, ADVISE_LINK, ADVISE_BOTH };
struct plan {
  enum action action;
  bool is_thin_link; /* in-process ThinLTO: one thread, with a warning */
  bool reads_stdin;
  bool runs_once; /* an input or output is a pipe or a device, which cannot be had twice */
  bool is_unseen; /* so is a response file */
  bool has_vocabulary; /* of IR2Vec, which LLVM would not be told of twice */
};

struct clang {
  char path[4096];
  const char *name; /* argv[0] */
  bool needs_cxx_mode;
  int version;
};

struct message {
  char text[MESSAGE_BYTES];
};

/* settings.c */
bool read_settings(struct settings *settings, int argc, char **argv, struct message *message);
/* Tells programs that are run how long may be waited. */
void pass_timeout_on(const struct settings *settings);

/* arguments.c */
struct plan plan_of(const struct settings *settings);

/* digest.c */
#define DIGEST_BYTES 32
struct digest {
  uint64_t state[8], count;
  uint8_t block[128];
  size_t used;
};
void begin_digest(struct digest *digest);
void add_to_digest(struct digest *digest, const void *data, size_t size);
void end_digest(struct digest *digest, uint8_t result[DIGEST_BYTES]);
/* Writes two digits for each byte, and a NUL. */
void write_hex(char *text, const uint8_t *bytes, size_t count);
/* What stands for something in the name of a file. */
#define KEY_BYTES 16
#define KEY_DIGITS (2 * KEY_BYTES)

/* kept.c */
/* Whether this program is whole and nobody else can replace it; what is damaged is removed. */
bool check_cache(struct message *message);
/* The path of what is kept under a name, or for "" of the folder. */
bool kept_path(char *path, size_t size, const char *name);
/* Opens what is kept, whole and nobody else's, and tells its length without the checksum; or -1. */
int open_kept(const char *name, size_t *size);
/* Reads the beginning of it; false where there is none. */
bool read_kept(const char *name, char *text, size_t room);
void keep(const char *name, const char *text);
/* Takes in a file's first bytes; the result is how many there were. */
size_t add_file_to_digest(struct digest *digest, int file, size_t size);

/* cache.c */
bool find_clang(const struct settings *settings, struct clang *clang, struct message *message);
bool check_clang(struct clang *clang, struct message *message);
/* Runs a program and keeps the beginning of what it prints; returns its exit status, or -1. */
int ask(char *const *command, char *text, size_t size);
/* Prints what decides the code besides the sources; false where a policy cannot be loaded. */
bool print_fingerprint(const struct settings *settings, const struct clang *clang,
                       struct message *message);
const char *python_path(void);

/* model.c */
const struct mlgo_policy *load_policy(const struct settings *settings, const struct clang *clang,
                                      enum problem problem, struct message *message);

/* policy.c */
struct binding;
struct binding *bind_policy(const struct mlgo_policy *policy, enum problem problem,
                            const char *header, size_t length, struct message *message);
size_t observation_bytes(const struct binding *binding);
/* The advice for an observation; NULL with a message where there is none that LLVM may be told. */
const void *answer(struct binding *binding, const uint8_t *observation, size_t *size_bytes,
                   struct message *message);
void release_binding(struct binding *binding);
bool wants_input(const struct mlgo_policy *policy, const char *name);

/* channel.c */
struct channel {
  enum problem problem;
  const struct mlgo_policy *policy;
  char base[4096]; /* of the FIFOs' names */
  char told[4096]; /* the same, as clang's processes are told */
  int inbound, outbound;
  bool is_open; /* between a header and the end of its stream */
  bool was_open;
  struct binding *binding;
  uint8_t *buffer;
  size_t used, capacity;
};
/* Makes the FIFOs in a folder, which clang has under a descriptor; or -1. */
bool open_channel(struct channel *channel, const char *folder, int folder_file,
                  struct message *message);
/* Takes in what LLVM has sent and answers it. */
bool serve_channel(struct channel *channel, struct message *message);
void remove_channel(const struct channel *channel);

/* serve.c */
/* How a server process ends: with clang's wait status, or unable to serve. */
struct outcome {
  bool is_served;
  bool was_asked; /* LLVM's back end had begun */
  int status;     /* of clang, as waitpid gives it */
  struct message message;
};
struct job {
  const struct clang *clang;
  char **arguments; /* with the advisor's options */
  struct channel *channels;
  size_t channel_count;
  char folder[4096];
  int folder_file; /* under the same number in clang; or -1 */
  int vocabulary;  /* so is this file; or -1 */
  double timeout_s;
  int stdout_copy; /* or -1 */
  int stderr_copy; /* or -1 */
};
struct outcome run_job(const struct job *job);
void remove_folder(const struct job *job);
/* Called by a child: it is told to end when its parent has ended. */
void die_with(pid_t parent);

/* command.c */
char **advised(const struct settings *settings, const struct plan *plan, const struct job *job);
/* Whether clang's driver takes a job's command line, which it does not run. */
bool is_accepted(const struct job *job);

/* streams.c */
int memory_file(void);
/* Puts a copy of all of standard input in its place; false where that cannot be done. */
bool keep_stdin(void);
/* Writes what was held back of a stream; false where it cannot be written. */
bool show(int copy, int stream);
/* Whether clang's messages, held back, name an error at a place in a source. */
bool blames_a_source(int copy);

#endif
