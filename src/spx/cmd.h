/* cmd.h — the tree of commands, their arguments, and what every command shares.
 * Not here: what commands do (cmd_*.c).
 * Threads:  one: the command runs on the main thread.
 * Memory:   a struct spx lives in main(); strings of argv are borrowed; 'arena' lasts to the
 *           end.
 * Errors:   a command returns 0 (done), negative errno with *err set (exit status 1), or
 *           SPX_USAGE after it said what is wrong with the arguments (exit status 2). */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include "kv/kv.h"
#include "model/config.h"

#define SPX_USAGE    1
#define SPX_MAX_OPTS 24u
#define SPX_MAX_POS  64u

enum { SPX_EXIT_OK, SPX_EXIT_FAILED, SPX_EXIT_USAGE };

struct spx_opt {
    const char *name; /* "--node" */
    const char *arg;  /* "NAME", or NULL: a switch */
    const char *help;
};

struct spx;
struct spx_cmd {
    const char *name;
    const char *args; /* "FILE|URL [...]", for the usage line; NULL = none */
    const char *help; /* one line */
    const char *more; /* paragraphs below the usage, or NULL */
    const struct spx_opt *opts;
    size_t n_opts;
    unsigned min_pos, max_pos; /* positional arguments */
    int (*fn)(struct spx *s, struct err *err);
    const struct spx_cmd *sub;
    size_t n_sub;
    bool takes_rest; /* everything after the name is the command's, options too ("spx aws") */
};

struct spx {
    struct arena *arena;
    const struct spx_cmd *cmd;
    const char *path; /* "spx admin account create" */
    bool is_json;
    const char *config_path;          /* --config, or NULL */
    const char *values[SPX_MAX_OPTS]; /* of cmd->opts, "" for a switch that is given */
    const char *pos[SPX_MAX_POS];
    size_t n_pos;
    char **rest; /* takes_rest: NULL-terminated */

    struct config *cfg; /* after spx_config() */
    struct kv *kv;      /* after spx_state() */
};

extern const struct spx_cmd spx_root;

/* Parses and runs; returns the exit status. */
int spx_main(const struct spx_cmd *root, int argc, char **argv);

/* The value of an option of this command: NULL when it was not given. */
const char *spx_value(const struct spx *s, const char *name);
/* The same for an option that not every caller of this code has. */
const char *spx_value_if(const struct spx *s, const char *name);
bool spx_is_set(const struct spx *s, const char *name);
/* A number between min and max, or the default. SPX_USAGE after a message. */
MUST_CHECK int spx_number(const struct spx *s, const char *name, uint64_t min, uint64_t max,
                          uint64_t dflt, uint64_t *ret);
/* Prints "spx ...: message" and how to get help; returns SPX_USAGE. */
int spx_usage_error(const struct spx *s, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Reads the configuration (once). */
MUST_CHECK int spx_config(struct spx *s, struct err *err);
/* The store, through spx-state (once). */
MUST_CHECK int spx_state(struct spx *s, struct err *err);
/* "AccessDenied" unless root. */
MUST_CHECK int spx_need_root(const struct spx *s, struct err *err);

/* 0 when somebody answers there; else at once -ENOTCONN or -EACCES, with what to do. */
MUST_CHECK int spx_check_socket(const char *path, struct err *err);
/* One call to a service's socket: 'payload' JSON, the answer parsed. 'fd' -1 = none. */
struct json;
MUST_CHECK int spx_call(struct spx *s, const char *socket_name, const char *method,
                        struct str payload, int fd, uint64_t timeout_ns, struct json **ret,
                        struct err *err);
