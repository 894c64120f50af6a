/* mlgo-cc: a compiler driver in front of clang that answers LLVM's questions with a policy.
 *
 *   settings.c   what the user asked for: options, environment, configuration file
 *   arguments.c  what clang's command line means for us
 *   digest.c     BLAKE2b
 *   kept.c       the files that are kept between compilations, and why they may be trusted
 *   cache.c      which clang it is, and its version
 *   ccache.c     whether ccache or sccache knows what decides the code
 *   model.c      the policy of a model's files
 *   policy.c     a policy bound to what LLVM says it sends
 *   call_site.c  the call that LLVM asks about, where this process is LLVM's
 *   answers.c    what search found, in place of a policy
 *   traces.c     the folder of that
 *   module.c     which module it was found for
 *   stream.c     what LLVM sends, taken apart and answered
 *   inside.c     the library in clang's process, where LLVM's writes and reads are answered
 *   forked.c     its processes that clang's forks, one for each model whose object is compared
 *   local.c      functions that become local there, as a project file has it
 *   preload.c    the driver's end of that
 *   project.c    the project file
 *   text.c       files for version control, read as a whole
 *   channel.c    FIFOs in its place, where nothing can be preloaded
 *   command.c    clang's command line with what is added to it
 *   smallest.c   the smallest of several objects, clang's own among them
 *   trials.c     how the objects come about that are compared
 *   streams.c    standard input, and what clang says, in memory
 *   children.c   clang and its jobs: starting, waiting, ending
 *   serve.c      the server process of FIFOs: clang's parent, which answers and cleans up
 *   job.c        what clang is started with
 *   compile.c    clang with advice, and what is done where that fails
 *   main.c       the process that the build started, which may become plain clang
 */
#ifndef MLGO_DRIVER_H
#define MLGO_DRIVER_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "policy.h"

#define MINIMUM_CLANG 19
#define MESSAGE_BYTES 1024
/* Of descriptors that clang has from us; whoever started this has few as high as that. */
#define FIRST_DESCRIPTOR 100
#define OPEN_FILE "/proc/self/fd/"
#define VERSION_WORDS "clang version "

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
  bool is_in_process;                /* clang is to answer itself, where it can */
  double timeout_s;                  /* of silence while a channel is open */
  const char *clang;                 /* what the user named; or NULL */
  const char *models[PROBLEM_COUNT]; /* folders; NULL leaves the problem to LLVM */
  const char *ir2vec;                /* a vocabulary in place of the inliner's own; or NULL */
  const char *threshold;             /* growth at which the inline advisor stops asking; or NULL */
  const char *keep_smaller;          /* "1", or models with commas between them; or NULL */
  const char *kept_log;              /* where it is noted what was kept; or NULL */
  const char *traces;                /* a folder of what search found; or NULL */
  const char *project;               /* a project file; or NULL */
  const char *launched;              /* the compiler in front of its arguments; or NULL */
  bool is_launcher;                  /* it must be there */
  bool wants_fingerprint;
  bool wants_key; /* of the module, in a folder of traces */
  bool wants_help;
  char **arguments; /* clang's, from [1]; NULL-terminated */
  size_t argument_count;
};

/* The functions that other objects of a project have, too: their hashes, in their order. */
struct shared {
  int file; /* or -1 where no project has the object */
  size_t count;
  bool is_exported; /* what is visible outside stays so */
  bool is_plain;    /* the object is to be clang's own */
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
  const char *object; /* all that comes out; or NULL where there is more, or it is not known */
  const char *obstacle; /* why an object that comes out is not known; or NULL */
  const char *repeated; /* an option whose file a second compilation would write anew; or NULL */
  const char *advisor; /* an option by which the command line has another advisor; or NULL */
  const char *input;  /* the one that it comes of */
  const char *named;  /* the object of one input, whether or not it can be compared; or NULL */
  const char *unnamed; /* why the object of a compilation is not known; or NULL */
  struct shared shared;
};

struct clang {
  char path[4096];
  const char *name; /* argv[0] */
  bool needs_cxx_mode;
  int version;
  bool can_preload, has_llvm; /* its process, and LLVM's functions are found there */
  bool leads_back; /* it starts mlgo-cc again */
};

struct message {
  char text[MESSAGE_BYTES];
};

/* settings.c */
bool read_settings(struct settings *settings, int argc, char **argv, struct message *message);
void print_help(void);
/* Writes the names of the models that ship, with commas between them. */
void name_shipped(char *text, size_t size);
/* Whether something else is here under the name of a shipped model, in whose place it is taken. */
bool hides_shipped(const char *model);
/* The models whose objects are compared with clang's own, the first of them; the result is how many,
 * which `read_settings` has seen to be no more than there is room for. */
#define MOST_MODELS 64
size_t models_to_compare(const struct settings *settings, const char **models);
/* Lets one of them answer. */
void take_model(struct settings *settings, const char *model);
/* Tells programs that are run how long may be waited. */
void pass_timeout_on(const struct settings *settings);

/* arguments.c */
struct plan plan_of(const struct settings *settings);
bool is_null_device(const char *path);

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
/* Lets the next call make this program and what belongs to it anew. */
void forget_program(void);
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
/* False where so many drivers have started each other that clang must be a program that starts them
 * again; else clang's processes count one more. */
bool check_nesting(struct clang *clang, struct message *message);
/* Runs a program, with a library preloaded or NULL, and writes what it prints to files, or keeps the
 * beginning of it; returns its exit status, or -1. */
struct preload;
int run(char *const *command, const struct preload *preload, int output, int errors);
int ask(char *const *command, const struct preload *preload, char *text, size_t size);
/* What decides the code besides the sources, for an object or NULL for any; NULL with a message where a
 * policy cannot be loaded. */
char *fingerprint_of(const struct settings *settings, const struct clang *clang, const char *object,
                     struct message *message);
const char *python_path(void);

/* ccache.c */
/* Where ccache asks for a fingerprint, adds what it compiles; false where that cannot be read. */
bool take_cached_arguments(int *argc, char ***argv, struct message *message);
/* False where ccache or sccache started this and gives back objects of other models. */
bool check_compiler_cache(const struct settings *settings, const struct clang *clang,
                          bool has_project, struct message *message);

/* model.c */
/* The file that it was loaded from stays open: under its number another would be taken for it. */
const struct mlgo_policy *load_policy(const struct settings *settings, const struct clang *clang,
                                      enum problem problem, int *file, struct message *message);

/* call_site.c: whether features of it can be told here; from then on they are. */
bool know_calls(const struct mlgo_call_site *site);

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

/* Loads a policy under the name of a descriptor: the very file that was looked at. */
const struct mlgo_policy *load_library(const char *path, const char *name,
                                       struct message *message);

/* stream.c */
struct stream {
  enum problem problem;
  const struct mlgo_policy *policy;
  struct answers *answers; /* that are given in its place; or NULL */
  struct binding *binding; /* of the last header */
  const uint8_t *at;       /* what was offered and not taken yet */
  size_t left;
  uint8_t *buffer; /* the beginning of a message that was cut */
  size_t used, capacity;
};
struct word {
  enum { NO_WORD, HEADER, CONTEXT, OBSERVATION } kind;
  const void *advice; /* on an observation, until the next one; or NULL */
  size_t size;
};
/* Hands over what LLVM has written, which must stay until `next_word` has found no word more. */
bool offer(struct stream *stream, const void *data, size_t size, struct message *message);
bool next_word(struct stream *stream, struct word *word, struct message *message);
/* Forgets a message that was cut. */
void start_over(struct stream *stream);
void end_stream(struct stream *stream);

/* channel.c */
struct channel {
  struct stream stream;
  int policy_file;
  size_t answers_bytes; /* that is one of answers; or 0 */
  char base[4096]; /* of the FIFOs' names */
  char told[4096]; /* the same, as clang's processes are told */
  int inbound, outbound;
  bool is_open; /* between a header and the end of its stream */
  bool was_open;
};
/* Makes the FIFOs in a folder. */
bool open_channel(struct channel *channel, const char *folder, struct message *message);
/* Takes in what LLVM has sent and answers it. */
bool serve_channel(struct channel *channel, struct message *message);
void remove_channel(const struct channel *channel);

/* preload.c */
struct preload {
  int page_file, library; /* one number behind the other; or -1 */
  struct page *page;
};
/* For clang to be asked for its version; false where there is no library that can be trusted. */
bool open_preload(struct preload *preload);
void close_preload(struct preload *preload);
/* Called by the child that becomes clang. */
void put_preload(const struct preload *preload);
/* Whether clang, which has ended, said its version through the library. */
bool was_spoken(const struct preload *preload);
/* Whether the library has found LLVM there. */
bool has_llvm(const struct preload *preload);
/* Whether its processes, if they loaded the library, had the memory to say so. */
bool was_mapped(const struct preload *preload);

/* job.c */
/* How a compilation ended: with clang's wait status, or unable to go on. */
struct outcome {
  bool is_served;
  bool was_open;  /* LLVM has opened what it was told to */
  bool was_asked; /* LLVM's back end had begun */
  bool is_right;  /* all answers were taken that search had found */
  int status;     /* of clang, as waitpid gives it */
  struct message message;
};
struct job {
  const struct clang *clang;
  const struct shared *shared;
  char **arguments; /* with the advisor's options */
  struct channel *channels;
  size_t channel_count;
  bool is_inside; /* clang's process answers; or there are FIFOs */
  struct preload preload;
  char folder[4096];
  int folder_file; /* under the same number in clang; or -1 */
  int vocabulary;  /* so is this file; or -1 */
  bool is_forked;  /* clang's process forks, and is not told of it */
  double timeout_s;
  int stdout_copy; /* or -1 */
  int stderr_copy; /* or -1 */
};
/* Opens the policies, and what LLVM reads of them. */
bool open_policies(struct job *job, const struct settings *settings, const struct plan *plan,
                   struct message *message);
/* What clang is to answer with itself; false where it is to use FIFOs. */
bool open_inside(struct job *job);
void close_inside(struct job *job);
/* Names what clang is told of, in a folder or under a descriptor of its processes; or -1. */
void name_channel(struct channel *channel, const char *folder, int number);
/* FIFOs in a folder of their own. */
bool open_channels(struct job *job, struct message *message);
void remove_folder(const struct job *job);

/* children.c */
struct outcome run_job(const struct job *job);
/* Called by a child: it is told to end when its parent has ended. */
void die_with(pid_t parent);
/* Starts clang with the signals that are blocked; the result is its pid, or -1 with errno. */
pid_t start_clang(const struct job *job, const sigset_t *mask);
/* Ends clang and what it has left behind; clang removes its unfinished outputs on SIGTERM. */
void end_children(pid_t clang);

/* serve.c */
void run_server(const struct job *job, const sigset_t *mask, int signals, int report);

/* command.c */
char **advised(const struct settings *settings, const struct plan *plan, const struct job *job);
/* LLVM's options that ask for advice, and tell where. */
#define MOST_OPTIONS 16
size_t advice_options(const struct settings *settings, const struct job *job, const char **options);
/* As they came, but our own options. */
char **plain_arguments(const struct settings *settings, const struct clang *clang);
/* Whether clang's driver takes a job's command line, which it does not run. */
bool is_accepted(const struct job *job);

/* trials.c */
int compile_and_keep(const struct settings *settings, const struct clang *clang,
                     const struct plan *plan);

/* compile.c */
/* Compiles with advice; the result is an exit status. */
int compile(const struct settings *settings, const struct clang *clang, const struct plan *plan);

/* The status of a driver whose clang starts it again: nobody above it tries anything else. */
#define LED_BACK 110

/* main.c */
extern const char *program;
/* Becomes clang; returns a status where it cannot. */
int become_clang(const struct settings *settings, const struct clang *clang);
/* Our side failed: a warning and plain clang, or where the user wants that an error. */
int fall_back(const struct settings *settings, const struct clang *clang,
              const struct message *message);
/* Ends as clang ended: by the same signal, without a core of our own, or with the same status. */
int end_as(int status);
void say(const char *kind, const char *text, const char *rest);
/* A warning, with what comes of it; an error where the user is strict, and then false. */
bool complain(const struct settings *settings, const char *text, const char *rest);

/* streams.c */
int memory_file(void);
/* Puts a copy of all of standard input in its place; false where that cannot be done. */
bool keep_stdin(void);
/* Writes what was held back of a stream; false where it cannot be written. */
bool show(int copy, int stream);
/* Whether clang's messages, held back, name an error at a place in a source. */
bool blames_a_source(int copy);
/* The line of our own at their beginning, without "PROGRAM: error: "; false where there is none. */
bool takes_error(int copy, const char *program, struct message *message);
/* Whether they say that LLVM found no channel. */
bool misses_a_channel(int copy);
/* Forgets what was held back. */
void drop(int copy);

#endif
