#include "codec/toml.h"
#include "base/num.h"
#include "codec/toml_int.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

struct parser {
    struct arena *a;
    const char *file;
    struct str rest;
    unsigned line;
    size_t n_nodes;
    unsigned n_inline;              /* inline tables that are open */
    struct toml_node *root, *table; /* where keys go now */
    struct err *err;
};

#define BAD(p, ...) bad_at((p), (p)->line, __VA_ARGS__)

static int PRINTF_LIKE(3, 4) bad_at(struct parser *p, unsigned line, const char *fmt, ...)
{
    char msg[ERR_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    return fail(p->err, -EINVAL, "BadConfig", "%s:%u: %s", p->file, line, msg);
}

static int no_room(struct parser *p)
{
    return fail(p->err, -ENOMEM, "BadConfig", "%s: the file is too large", p->file);
}

static char peek(const struct parser *p)
{
    return p->rest.n ? p->rest.p[0] : 0;
}

static void skip(struct parser *p, size_t n)
{
    p->rest = str_skip(p->rest, n);
}

static bool take(struct parser *p, char c)
{
    if (p->rest.n == 0 || p->rest.p[0] != c) {
        return false;
    }
    skip(p, 1);
    return true;
}

static void skip_blanks(struct parser *p)
{
    while (p->rest.n && (p->rest.p[0] == ' ' || p->rest.p[0] == '\t')) {
        skip(p, 1);
    }
}

/* Blanks, a comment, and the end of the line. */
static int end_line(struct parser *p)
{
    skip_blanks(p);
    if (peek(p) == '#') {
        ptrdiff_t i = str_find(p->rest, '\n', 0);
        skip(p, i < 0 ? p->rest.n : (size_t)i);
    }
    take(p, '\r');
    if (take(p, '\n')) {
        p->line++;
        return 0;
    }
    if (p->rest.n == 0) {
        return 0;
    }
    return BAD(p, "unexpected '%c' after the value", peek(p) > ' ' ? peek(p) : '?');
}

/* Between the items of an array lines and comments may come. */
static int skip_lines(struct parser *p)
{
    for (;;) {
        skip_blanks(p);
        if (p->rest.n == 0 || (peek(p) != '#' && peek(p) != '\n' && peek(p) != '\r')) {
            return 0;
        }
        int r = end_line(p);
        if (r < 0) {
            return r;
        }
    }
}

static struct toml_node *node_new(struct parser *p, struct toml_node *parent,
                                  enum toml_node_type type, struct str key)
{
    if (p->n_nodes >= TOML_MAX_KEYS) {
        return NULL;
    }
    struct toml_node *n = arena_alloc(p->a, sizeof(*n));
    if (!n) {
        return NULL;
    }
    p->n_nodes++;
    n->type = type;
    n->key = key;
    n->line = p->line;
    if (parent) {
        if (parent->last) {
            parent->last->next = n;
        } else {
            parent->first = n;
        }
        parent->last = n;
        parent->n++;
    }
    return n;
}

static struct toml_node *find(const struct toml_node *table, struct str key)
{
    for (struct toml_node *n = table->first; n; n = n->next) {
        if (str_eq(n->key, key)) {
            return n;
        }
    }
    return NULL;
}

static size_t put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        to[i] = (char)(unsigned char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    to[0] = (char)(unsigned char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

/* After the backslash; writes at most 4 bytes. */
static int parse_escape(struct parser *p, char *to, size_t *ret_n)
{
    static const char from[] = "btnfr\"\\";
    static const char into[] = "\b\t\n\f\r\"\\";
    char c = peek(p);
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        to[0] = into[at - from];
        *ret_n = 1;
        skip(p, 1);
        return 0;
    }
    size_t n = c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint64_t v = 0;
    if (n == 0 || p->rest.n < n + 1 || num_hex_u64(str_n(p->rest.p + 1, n), 0x10ffff, &v) < 0 ||
        (v >= 0xd800 && v <= 0xdfff) || v == 0) {
        return BAD(p, "unknown escape in a string");
    }
    skip(p, n + 1);
    *ret_n = put_utf8(to, (uint32_t)v);
    return 0;
}

static int parse_string(struct parser *p, struct str *ret)
{
    char quote = peek(p);
    if (p->rest.n >= 3 && p->rest.p[1] == quote && p->rest.p[2] == quote) {
        return BAD(p, "strings over several lines are not supported");
    }
    skip(p, 1);
    ptrdiff_t eol = str_find(p->rest, '\n', 0);
    char *to = arena_alloc(p->a, (eol < 0 ? p->rest.n : (size_t)eol) + 1);
    if (!to) {
        return no_room(p);
    }
    size_t n = 0;
    while (p->rest.n && peek(p) != quote && peek(p) != '\n') {
        size_t step = 1;
        if (peek(p) == '\\' && quote == '"') {
            skip(p, 1);
            int r = parse_escape(p, to + n, &step);
            if (r < 0) {
                return r;
            }
        } else {
            if ((unsigned char)peek(p) < 0x20 && peek(p) != '\t') {
                return BAD(p, "control character in a string");
            }
            to[n] = peek(p);
            skip(p, 1);
        }
        n += step;
    }
    if (!take(p, quote)) {
        return BAD(p, "a string does not end in %c on its line", quote);
    }
    *ret = str_n(to, n);
    return 0;
}

static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-';
}

static int parse_key_part(struct parser *p, struct str *ret)
{
    if (peek(p) == '"' || peek(p) == '\'') {
        int r = parse_string(p, ret);
        return r < 0 ? r : ret->n == 0 ? BAD(p, "empty key") : 0;
    }
    size_t n = 0;
    while (n < p->rest.n && is_bare(p->rest.p[n])) {
        n++;
    }
    if (n == 0) {
        return BAD(p, "expected a key");
    }
    *ret = arena_str_dup(p->a, str_n(p->rest.p, n));
    skip(p, n);
    return str_is_set(*ret) ? 0 : no_room(p);
}

struct path {
    struct str part[TOML_MAX_DEPTH];
    size_t n;
};

static int parse_path(struct parser *p, struct path *path)
{
    path->n = 0;
    do {
        skip_blanks(p);
        if (path->n == TOML_MAX_DEPTH) {
            return BAD(p, "keys are nested deeper than %u levels", TOML_MAX_DEPTH);
        }
        int r = parse_key_part(p, &path->part[path->n]);
        if (r < 0) {
            return r;
        }
        path->n++;
        skip_blanks(p);
    } while (take(p, '.'));
    return 0;
}

static int parse_word(struct parser *p, struct toml_node *n)
{
    size_t len = 0;
    while (len < p->rest.n && (is_bare(p->rest.p[len]) || strchr("+.:", p->rest.p[len])) &&
           p->rest.p[len]) {
        len++;
    }
    struct str w = str_n(p->rest.p, len);
    if (str_eqc(w, "true") || str_eqc(w, "false")) {
        n->type = NODE_BOOL;
        n->b = w.n == 4;
        skip(p, len);
        return 0;
    }
    char digits[40];
    size_t n_digits = 0;
    bool was_digit = false, is_bad = len == 0 || len >= sizeof(digits);
    for (size_t i = 0; i < len && !is_bad; i++) {
        bool is_digit = w.p[i] >= '0' && w.p[i] <= '9';
        is_bad = w.p[i] == '_' && (!was_digit || i + 1 == len);
        if (w.p[i] != '_' && !(w.p[i] == '+' && i == 0)) {
            digits[n_digits++] = w.p[i];
        }
        was_digit = is_digit;
    }
    struct str d = str_n(digits, n_digits);
    struct str bare = n_digits && digits[0] == '-' ? str_skip(d, 1) : d;
    is_bad = is_bad || (bare.n > 1 && bare.p[0] == '0') ||
             num_i64(d, INT64_MIN, INT64_MAX, &n->i) < 0;
    if (is_bad) {
        return BAD(p,
                   "'%.*s' is not a value: expected a \"string\", a whole number, true, false "
                   "or a [list]",
                   (int)MIN(len, (size_t)40), w.p);
    }
    n->type = NODE_INT;
    skip(p, len);
    return 0;
}

static int parse_value(struct parser *p, struct toml_node *n, bool is_in_list);

static int parse_list(struct parser *p, struct toml_node *list)
{
    list->type = NODE_LIST;
    skip(p, 1);
    for (;;) {
        int r = skip_lines(p);
        if (r < 0) {
            return r;
        }
        if (take(p, ']')) {
            return 0;
        }
        struct toml_node *item = node_new(p, list, NODE_STR, STR(""));
        r = item ? parse_value(p, item, true) : no_room(p);
        if (r < 0) {
            return r;
        }
        r = skip_lines(p);
        if (r < 0) {
            return r;
        }
        if (take(p, ',')) {
            continue;
        }
        if (!take(p, ']')) {
            return BAD(p, "expected ',' or ']' in a list");
        }
        return 0;
    }
}

static int parse_pair(struct parser *p);

/* On one line, as TOML 1.0 wants it. */
static int parse_inline(struct parser *p, struct toml_node *n)
{
    struct toml_node *outer = p->table;
    if (p->n_inline == TOML_MAX_DEPTH) {
        return BAD(p, "tables are nested deeper than %u levels", TOML_MAX_DEPTH);
    }
    n->type = NODE_TABLE;
    n->is_defined = n->is_inline = true;
    skip(p, 1);
    skip_blanks(p);
    if (take(p, '}')) {
        return 0;
    }
    p->n_inline++;
    p->table = n;
    for (;;) {
        int r = parse_pair(p);
        if (r < 0) {
            return r;
        }
        skip_blanks(p);
        if (take(p, '}')) {
            p->table = outer;
            p->n_inline--;
            return 0;
        }
        if (!take(p, ',')) {
            return BAD(p, "expected ',' or '}' in an inline table");
        }
    }
}

static int parse_value(struct parser *p, struct toml_node *n, bool is_in_list)
{
    switch (peek(p)) {
    case '"':
    case '\'': n->type = NODE_STR; return parse_string(p, &n->s);
    case '[': return is_in_list ? BAD(p, "lists of lists are not supported") : parse_list(p, n);
    case '{':
        return is_in_list ? BAD(p, "tables in a list are written [[table]]")
                          : parse_inline(p, n);
    default: return parse_word(p, n);
    }
}

/* The table named by the first n parts, made on the way. */
static int walk(struct parser *p, struct toml_node *from, const struct path *path, size_t n,
                struct toml_node **ret)
{
    struct toml_node *t = from;
    for (size_t i = 0; i < n; i++) {
        struct toml_node *c = find(t, path->part[i]);
        if (!c) {
            c = node_new(p, t, NODE_TABLE, path->part[i]);
            if (!c) {
                return no_room(p);
            }
        }
        if (c->is_inline) {
            return BAD(p, "'%.*s' is whole already (line %u): nothing can be added",
                       STR_ARG(path->part[i]), c->line);
        }
        if (c->type == NODE_TABLES) {
            c = c->last;
        } else if (c->type != NODE_TABLE) {
            return BAD(p, "'%.*s' is a value (line %u), not a table", STR_ARG(path->part[i]),
                       c->line);
        }
        t = c;
    }
    *ret = t;
    return 0;
}

static int parse_header(struct parser *p)
{
    struct path path;
    struct toml_node *parent = NULL;
    skip(p, 1);
    bool is_list = take(p, '[');
    int r = parse_path(p, &path);
    if (r < 0) {
        return r;
    }
    if (!take(p, ']') || (is_list && !take(p, ']'))) {
        return BAD(p, "a table's name does not end in %s", is_list ? "]]" : "]");
    }
    r = walk(p, p->root, &path, path.n - 1, &parent);
    if (r < 0) {
        return r;
    }
    struct str key = path.part[path.n - 1];
    struct toml_node *t = find(parent, key);
    enum toml_node_type want = is_list ? NODE_TABLES : NODE_TABLE;
    if (t && (t->type != want || (!is_list && t->is_defined))) {
        return BAD(p, "'%.*s' is already there (line %u)", STR_ARG(key), t->line);
    }
    if (!t) {
        t = node_new(p, parent, want, key);
    }
    if (t && is_list) {
        t = node_new(p, t, NODE_TABLE, key);
    }
    if (!t) {
        return no_room(p);
    }
    t->is_defined = true;
    t->line = p->line;
    p->table = t;
    return 0;
}

static int parse_pair(struct parser *p)
{
    struct path path;
    struct toml_node *t = NULL;
    int r = parse_path(p, &path);
    if (r < 0) {
        return r;
    }
    if (!take(p, '=')) {
        return BAD(p, "expected '=' after '%.*s'", STR_ARG(path.part[path.n - 1]));
    }
    r = walk(p, p->table, &path, path.n - 1, &t);
    if (r < 0) {
        return r;
    }
    struct str key = path.part[path.n - 1];
    struct toml_node *n = find(t, key);
    if (n) {
        return BAD(p, "'%.*s' is already set (line %u)", STR_ARG(key), n->line);
    }
    skip_blanks(p);
    n = node_new(p, t, NODE_STR, key);
    return n ? parse_value(p, n, false) : no_room(p);
}

int toml_parse(struct arena *a, const char *file, struct str text, struct toml_node **ret,
               struct err *err)
{
    struct parser p = {.a = a, .file = file, .rest = text, .line = 1, .err = err};
    if (text.n > TOML_MAX_SIZE) {
        return no_room(&p);
    }
    if (str_utf8_len(text) == SIZE_MAX || (text.n && memchr(text.p, 0, text.n))) {
        return fail(err, -EINVAL, "BadConfig", "%s: the file is not UTF-8 text", file);
    }
    p.root = p.table = node_new(&p, NULL, NODE_TABLE, STR(""));
    if (!p.root) {
        return no_room(&p);
    }
    for (;;) {
        int r = skip_lines(&p);
        if (r < 0) {
            return r;
        }
        if (p.rest.n == 0) {
            *ret = p.root;
            return 0;
        }
        r = peek(&p) == '[' ? parse_header(&p) : parse_pair(&p);
        r = r < 0 ? r : end_line(&p);
        if (r < 0) {
            return r;
        }
    }
}
