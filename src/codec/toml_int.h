/* toml_int.h — the tree between the text (toml.c) and the tables (toml_bind.c).
 * Not here: the door, toml.h.
 * Threads:  no state.
 * Memory:   in the arena.
 * Errors:   as toml.h. */
#pragma once
#include "codec/toml.h"

enum toml_node_type { NODE_STR, NODE_INT, NODE_BOOL, NODE_LIST, NODE_TABLE, NODE_TABLES };

struct toml_node {
    enum toml_node_type type;
    struct str key;
    unsigned line;
    bool is_defined; /* a table with a [header] or keys of its own: may not be opened again */
    bool is_inline;  /* { ... }: whole as it stands there */
    bool is_seen;    /* by toml_bind.c */
    struct str s;
    int64_t i;
    bool b;
    struct toml_node *first, *last, *next; /* members or items, in order */
    size_t n;
};

MUST_CHECK int toml_parse(struct arena *a, const char *file, struct str text,
                          struct toml_node **ret, struct err *err);
