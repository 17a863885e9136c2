#include "base/num.h"
#include "base/time.h"
#include "codec/nearest.h"
#include "codec/toml.h"
#include "codec/toml_int.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct binder {
    struct arena *a;
    const char *file;
    struct err *err;
};

/* What a list member looks like in the struct. */
struct slot_list {
    void *v;
    size_t n;
};

static int PRINTF_LIKE(4, 5)
    bad(struct binder *b, unsigned line, struct str path, const char *fmt, ...)
{
    char msg[ERR_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    return fail(b->err, -EINVAL, "BadConfig", "%s:%u: key '%.*s' %s", b->file, line,
                STR_ARG(path), msg);
}

static int no_room(struct binder *b)
{
    return fail(b->err, -ENOMEM, "BadConfig", "%s: the file is too large", b->file);
}

static struct str join(struct binder *b, struct str path, struct str key)
{
    struct str s = path.n ? arena_fmt(b->a, "%.*s.%.*s", STR_ARG(path), STR_ARG(key)) : key;
    return str_is_set(s) ? s : key;
}

struct unit {
    const char *name;
    uint64_t factor;
};

static int parse_unit(struct str s, const struct unit *units, size_t n_units, uint64_t *ret)
{
    size_t n = 0;
    while (n < s.n && s.p[n] >= '0' && s.p[n] <= '9') {
        n++;
    }
    struct str unit = str_trim(str_skip(s, n));
    uint64_t v = 0;
    if (n == 0 || num_u64(str_n(s.p, n), UINT64_MAX, &v) < 0) {
        return -EINVAL;
    }
    for (size_t i = 0; i < n_units; i++) {
        if (str_eqc(unit, units[i].name)) {
            return __builtin_mul_overflow(v, units[i].factor, ret) ? -ERANGE : 0;
        }
    }
    return -EINVAL;
}

int toml_parse_size(struct str s, uint64_t *ret_bytes)
{
    static const struct unit units[] = {
        {"", 1},
        {"B", 1},
        {"KiB", UINT64_C(1) << 10},
        {"MiB", UINT64_C(1) << 20},
        {"GiB", UINT64_C(1) << 30},
        {"TiB", UINT64_C(1) << 40},
        {"kB", 1000},
        {"KB", 1000},
        {"MB", 1000000},
        {"GB", 1000000000},
        {"TB", UINT64_C(1000000000000)},
    };
    return parse_unit(s, units, ARRAY_LEN(units), ret_bytes);
}

int toml_parse_duration(struct str s, uint64_t *ret_ns)
{
    static const struct unit units[] = {
        {"ns", 1},
        {"us", 1000},
        {"ms", NS_PER_MS},
        {"s", NS_PER_S},
        {"m", 60 * NS_PER_S},
        {"min", 60 * NS_PER_S},
        {"h", 3600 * NS_PER_S},
        {"d", 86400 * NS_PER_S},
    };
    return parse_unit(s, units, ARRAY_LEN(units), ret_ns);
}

static int check_range(struct binder *b, unsigned line, struct str path,
                       const struct toml_key *k, uint64_t v, const char *what)
{
    if (v < k->min || (k->max && v > k->max)) {
        return k->max ? bad(b, line, path, "%smust be from %" PRIu64 " to %" PRIu64, what,
                            k->min, k->max)
                      : bad(b, line, path, "%smust be at least %" PRIu64, what, k->min);
    }
    return 0;
}

static int bind_str(struct binder *b, unsigned line, struct str path, const struct toml_key *k,
                    struct str v, const char **slot)
{
    const char *wrong = k->check ? k->check(v) : NULL;
    if (wrong) {
        return bad(b, line, path, "is '%.*s', which %s", STR_ARG(v), wrong);
    }
    struct str copy = arena_str_dup(b->a, v);
    if (!str_is_set(copy)) {
        return no_room(b);
    }
    *slot = copy.p;
    return 0;
}

static int bind_number(struct binder *b, struct str path, const struct toml_key *k,
                       const struct toml_node *n, uint64_t *slot)
{
    uint64_t v = 0;
    int r = -EINVAL;
    if (n->type == NODE_INT && k->type != TOML_DURATION && n->i >= 0) {
        v = (uint64_t)n->i;
        r = 0;
    } else if (n->type == NODE_STR && k->type == TOML_SIZE) {
        r = toml_parse_size(n->s, &v);
    } else if (n->type == NODE_STR && k->type == TOML_DURATION) {
        r = toml_parse_duration(n->s, &v);
    }
    if (r < 0) {
        return bad(b, n->line, path, "must be %s",
                   k->type == TOML_INT    ? "a whole number"
                   : k->type == TOML_SIZE ? "a size like \"64MiB\""
                                          : "a duration like \"10s\"");
    }
    *slot = v;
    return check_range(b, n->line, path, k, v, "");
}

static int bind_str_list(struct binder *b, struct str path, const struct toml_key *k,
                         const struct toml_node *n, struct slot_list *slot)
{
    if (n->type != NODE_LIST) {
        return bad(b, n->line, path, "must be a list of strings");
    }
    int r = check_range(b, n->line, path, k, n->n, "(number of items) ");
    const char **v = n->n ? arena_array(b->a, n->n, sizeof(*v)) : NULL;
    if (r < 0 || (n->n && !v)) {
        return r < 0 ? r : no_room(b);
    }
    size_t i = 0;
    for (const struct toml_node *item = n->first; item; item = item->next) {
        if (item->type != NODE_STR) {
            return bad(b, item->line, path, "must be a list of strings");
        }
        r = bind_str(b, item->line, path, k, item->s, &v[i++]);
        if (r < 0) {
            return r;
        }
    }
    *slot = (struct slot_list){.v = v, .n = n->n};
    return 0;
}

static int bind_table(struct binder *b, const struct toml_schema *schema, struct str path,
                      struct toml_node *t, void *out);

static int bind_tables(struct binder *b, struct str path, const struct toml_key *k,
                       struct toml_node *n, struct slot_list *slot)
{
    bool is_named = k->type == TOML_NAMED;
    if (n->type != (is_named ? NODE_TABLE : NODE_TABLES)) {
        return is_named ? bad(b, n->line, path, "must be tables [%s.NAME]", k->key)
                        : bad(b, n->line, path, "must be tables [[%s]]", k->key);
    }
    int r = check_range(b, n->line, path, k, n->n, "(number of tables) ");
    char *v = n->n ? arena_array(b->a, n->n, k->sub->size) : NULL;
    if (r < 0 || (n->n && !v)) {
        return r < 0 ? r : no_room(b);
    }
    size_t i = 0;
    for (struct toml_node *c = n->first; c; c = c->next, i++) {
        struct str sub = is_named ? join(b, path, c->key) : path;
        if (c->type != NODE_TABLE) {
            return bad(b, c->line, sub, "must be a table");
        }
        r = bind_table(b, k->sub, sub, c, v + i * k->sub->size);
        if (r < 0) {
            return r;
        }
        if (is_named) {
            *(const char **)(void *)(v + i * k->sub->size) =
                c->key.p; /* the arena's, with NUL */
        }
    }
    *slot = (struct slot_list){.v = v, .n = n->n};
    return 0;
}

static int bind_key(struct binder *b, struct str path, const struct toml_key *k,
                    struct toml_node *n, void *slot)
{
    int r = 0;
    switch (k->type) {
    case TOML_STR:
        if (n->type != NODE_STR) {
            return bad(b, n->line, path, "must be a \"string\"");
        }
        r = check_range(b, n->line, path, k, n->s.n, "(length) ");
        return r < 0 ? r : bind_str(b, n->line, path, k, n->s, slot);
    case TOML_INT:
    case TOML_SIZE:
    case TOML_DURATION: return bind_number(b, path, k, n, slot);
    case TOML_BOOL:
        if (n->type != NODE_BOOL) {
            return bad(b, n->line, path, "must be true or false");
        }
        *(bool *)slot = n->b;
        return 0;
    case TOML_STR_LIST: return bind_str_list(b, path, k, n, slot);
    case TOML_TABLE:
        if (n->type != NODE_TABLE) {
            return bad(b, n->line, path, "must be a table [%s]", k->key);
        }
        return bind_table(b, k->sub, path, n, slot);
    case TOML_TABLES:
    case TOML_NAMED: return bind_tables(b, path, k, n, slot);
    }
    return bad(b, n->line, path, "has a type this program does not know");
}

/* The same code reads defaults and files: a default becomes a node. */
static int bind_default(struct binder *b, struct str path, const struct toml_key *k, void *slot)
{
    struct toml_node n = {.type = NODE_STR, .s = str_c(k->dflt ? k->dflt : "")};
    if (k->type == TOML_TABLE) {
        n.type = NODE_TABLE;
    } else if (k->type == TOML_STR_LIST && k->dflt) {
        struct str rest = n.s, item = STR_NONE;
        n.type = NODE_LIST;
        while (str_next(&rest, ',', &item)) {
            struct toml_node *c = arena_alloc(b->a, sizeof(*c));
            if (!c) {
                return no_room(b);
            }
            *c = (struct toml_node){.type = NODE_STR, .s = item};
            *(n.last ? &n.last->next : &n.first) = c;
            n.last = c;
            n.n++;
        }
    } else if (k->type == TOML_STR && !k->dflt) {
        *(const char **)slot = "";
        return 0;
    } else if (!k->dflt) {
        return 0;
    } else if (k->type == TOML_BOOL) {
        n.type = NODE_BOOL;
        n.b = str_eqc(n.s, "true");
    } else if (k->type == TOML_INT) {
        n.type = NODE_INT;
        if (num_i64(n.s, 0, INT64_MAX, &n.i) < 0) {
            abort(); /* a default of ours */
        }
    }
    return bind_key(b, path, k, &n, slot);
}

static int bind_table(struct binder *b, const struct toml_schema *schema, struct str path,
                      struct toml_node *t, void *out)
{
    for (size_t i = 0; i < schema->n_keys; i++) {
        const struct toml_key *k = &schema->keys[i];
        struct str sub = join(b, path, str_c(k->key));
        struct toml_node *n = t->first;
        while (n && !str_eqc(n->key, k->key)) {
            n = n->next;
        }
        if (!n && k->is_required) {
            return fail(b->err, -EINVAL, "BadConfig", "%s:%u: key '%.*s' is missing", b->file,
                        t->line, STR_ARG(sub));
        }
        char *slot = (char *)out + k->off;
        int r = n ? bind_key(b, sub, k, n, slot) : bind_default(b, sub, k, slot);
        if (r < 0) {
            return r;
        }
        if (n) {
            n->is_seen = true;
        }
    }
    for (const struct toml_node *n = t->first; n; n = n->next) {
        if (n->is_seen) {
            continue;
        }
        struct str sub = join(b, path, n->key);
        const char *near =
            nearest_word(n->key, schema->keys, schema->n_keys, sizeof(schema->keys[0]));
        return near ? fail(b->err, -EINVAL, "BadConfig",
                           "%s:%u: unknown key '%.*s' (did you mean '%s'?)", b->file, n->line,
                           STR_ARG(sub), near)
                    : fail(b->err, -EINVAL, "BadConfig", "%s:%u: unknown key '%.*s'", b->file,
                           n->line, STR_ARG(sub));
    }
    return 0;
}

int toml_load(const struct toml_schema *schema, struct arena *a, const char *file,
              struct str text, void *out, struct err *err)
{
    struct binder b = {.a = a, .file = file, .err = err};
    struct toml_node *root = NULL;
    memset(out, 0, schema->size);
    int r = toml_parse(a, file, text, &root, err);
    r = r < 0 ? r : bind_table(&b, schema, STR(""), root, out);
    if (r < 0) {
        memset(out, 0, schema->size);
    }
    return r;
}

void toml_quote(struct str s, struct buf *out)
{
    buf_add_char(out, '"');
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '"' || c == '\\') {
            buf_add_char(out, '\\');
            buf_add_char(out, c);
        } else if ((unsigned char)c < 0x20 || c == 0x7f) {
            buf_fmt(out, "\\u%04x", (unsigned)(unsigned char)c);
        } else {
            buf_add_char(out, c);
        }
    }
    buf_add_char(out, '"');
}

static void doc_table(const struct toml_schema *schema, struct str path, struct buf *out)
{
    static const char *const types[] = {"string", "number",   "true/false",
                                        "size",   "duration", "strings",
                                        "table",  "tables",   "named tables"};
    for (size_t i = 0; i < schema->n_keys; i++) {
        const struct toml_key *k = &schema->keys[i];
        AUTO_BUF sub;
        buf_init(&sub, 1000);
        buf_fmt(&sub, "%.*s%s%s", STR_ARG(path), path.n ? "." : "", k->key);
        if (k->sub) {
            buf_addc(&sub, k->type == TOML_TABLES  ? "[]"
                           : k->type == TOML_NAMED ? ".NAME"
                                                   : "");
            doc_table(k->sub, buf_str(&sub), out);
            continue;
        }
        buf_fmt(out, "| `%.*s` | %s | %s | %s |\n", STR_ARG(buf_str(&sub)), types[k->type],
                k->is_required ? "(required)"
                : k->dflt      ? k->dflt
                               : "",
                k->doc ? k->doc : "");
    }
}

void toml_doc(const struct toml_schema *schema, struct buf *out)
{
    buf_addc(out, "| key | type | default | meaning |\n|---|---|---|---|\n");
    doc_table(schema, STR(""), out);
}
