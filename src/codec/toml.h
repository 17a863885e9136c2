/* toml.h — the part of TOML that configuration needs, and tables that say which keys there are.
 * Has:      tables, inline tables, arrays of tables, dotted and quoted keys, strings, whole
 *           numbers, booleans, lists of these. Floats, dates and multi-line strings are refused.
 * Threads:  no state.
 * Memory:   everything lives in the arena given.
 * Errors:   -EINVAL "BadConfig", "file:line: what is wrong"; unknown keys name the nearest.
 */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include <stdint.h>

#define TOML_MAX_SIZE  (1u << 20)
#define TOML_MAX_KEYS  4096u
#define TOML_MAX_DEPTH 8u

enum toml_type {
    TOML_STR,      /* const char * */
    TOML_INT,      /* uint64_t */
    TOML_BOOL,     /* bool */
    TOML_SIZE,     /* uint64_t bytes: "64MiB", "10GB", 512 */
    TOML_DURATION, /* uint64_t nanoseconds: "500ms", "10s", "5m", "2h", "1d" */
    TOML_STR_LIST, /* const char **v; size_t n; */
    TOML_TABLE,    /* a struct in line */
    TOML_TABLES,   /* T *v; size_t n;  [[key]] */
    TOML_NAMED,    /* T *v; size_t n;  [key.NAME]; T begins with const char *name */
};

struct toml_schema;
struct toml_key {
    const char *key;
    enum toml_type type;
    size_t off;
    const char *dflt;  /* as text, items of a list by commas; NULL: "", 0, false, empty */
    uint64_t min, max; /* of TOML_INT, TOML_SIZE, TOML_DURATION, the length of strings, items of
                          lists; max 0 = no limit */
    bool is_required;
    /* NULL, or says what is wrong with a string (or an item of a list): "is not an IPv4
     * address" */
    const char *(*check)(struct str v);
    const struct toml_schema *sub;
    const char *doc; /* one sentence */
};
struct toml_schema {
    size_t size; /* of the struct */
    const struct toml_key *keys;
    size_t n_keys;
};

/* Reads 'text' into *out (schema->size bytes, zeroed first). 'file' is for messages. */
MUST_CHECK int toml_load(const struct toml_schema *schema, struct arena *a, const char *file,
                         struct str text, void *out, struct err *err);
/* Appends a table of all keys for people (Markdown). */
void toml_doc(const struct toml_schema *schema, struct buf *out);
/* Appends s as a quoted string. */
void toml_quote(struct str s, struct buf *out);

/* Whole strings only. */
MUST_CHECK int toml_parse_size(struct str s, uint64_t *ret_bytes);
MUST_CHECK int toml_parse_duration(struct str s, uint64_t *ret_ns);
