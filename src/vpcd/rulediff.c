#include "vpcd/rulediff.h"

#include "base/omap.h"
#include "base/vec.h"

#include <errno.h>
#include <stdint.h>

struct object { /* " chain x {" ... " }" */
    struct str table, kind, name,
        key; /* table "inet spx"; key: from the table's line to the name, unique */
    struct str head,
        body; /* body: rules of a chain; the elements of a set or map, without braces */
};

struct doc {
    VEC(struct object) objects;
    struct omap *by_key;
};

static void doc_done(struct doc *d)
{
    for (size_t i = 0; i < d->objects.n; i++) {
        free((char *)(uintptr_t)d->objects.v[i].key.p);
    }
    vec_free(&d->objects);
    omap_free(d->by_key, NULL);
}

static bool is_chain(const struct object *o)
{
    return str_eqc(o->kind, "chain");
}

/* A line of an object's inside: where does it belong? */
static void take_line(struct object *o, struct str line)
{
    static const char elements[] = "  elements = { ";
    bool is_base = str_has_prefixc(line, "  type ") && is_chain(o);
    if (str_has_prefixc(line, elements)) {
        o->body = str_n(line.p + sizeof(elements) - 1, line.n - (sizeof(elements) - 1) - 2);
    } else if (is_base || !is_chain(o)) {
        o->head = str_n(o->head.p, (size_t)(line.p + line.n + 1 - o->head.p));
    } else {
        o->body = o->body.n ? o->body : str_n(line.p, 0);
        o->body.n = (size_t)(line.p + line.n + 1 - o->body.p);
    }
}

static int begin_object(struct doc *d, struct str table, struct str line, struct err *err)
{
    struct str rest = str_skip(line, 1);
    struct object o = {.table = table};
    o.kind = str_cut(rest, ' ');
    o.name = str_cut(str_skip(rest, o.kind.n + 1), ' ');
    o.head = str_n(line.p + line.n + 1, 0);
    if (!str_has_suffix(line, STR(" {")) || o.name.n == 0 ||
        (!is_chain(&o) && !str_eqc(o.kind, "set") && !str_eqc(o.kind, "map"))) {
        return fail(err, -EINVAL, "BadRules", "not an object: %.*s", STR_ARG(line));
    }
    AUTO_BUF key;
    buf_init(&key, 256);
    buf_fmt(&key, "%.*s/%.*s", STR_ARG(table), STR_ARG(o.name));
    size_t n = key.n;
    char *p = buf_take(&key);
    if (!p) {
        return fail(err, -EINVAL, "BadRules", "the name is too long: %.*s", STR_ARG(line));
    }
    o.key = str_n(p, n);
    vec_push(&d->objects, o);
    return 0;
}

static int read_doc(struct str text, struct doc *d, struct err *err)
{
    struct str rest = text, line, table = STR_NONE;
    struct object *o = NULL;
    d->by_key = omap_new();
    while (str_next(&rest, '\n', &line)) {
        if (str_has_prefixc(line, "table ") && str_has_suffix(line, STR(" {"))) {
            table = str_n(line.p + 6, line.n - 8);
        } else if (str_has_prefixc(line, "  ")) {
            if (!o) {
                return fail(err, -EINVAL, "BadRules", "a line outside: %.*s", STR_ARG(line));
            }
            take_line(o, line);
        } else if (str_eqc(line, " }")) {
            o = NULL;
        } else if (str_has_prefixc(line, " ")) {
            int r = begin_object(d, table, line, err);
            if (r) {
                return r;
            }
            o = &d->objects.v[d->objects.n - 1];
        }
    }
    for (size_t i = 0; i < d->objects.n; i++) {
        if (omap_put(d->by_key, d->objects.v[i].key, &d->objects.v[i])) {
            return fail(err, -EINVAL, "BadRules", "twice: %.*s", STR_ARG(d->objects.v[i].key));
        }
    }
    return 0;
}

/* ---- elements ---- */

static struct omap *split_elements(struct str s)
{
    static char present;
    struct omap *m = omap_new();
    while (s.n) {
        ptrdiff_t at = str_find_str(s, STR(", "));
        struct str e = at < 0 ? s : str_n(s.p, (size_t)at);
        omap_put(m, e, &present);
        s = at < 0 ? STR("") : str_skip(s, (size_t)at + 2);
    }
    return m;
}

/* "delete element inet spx s { a, b }" for what is in 'from' and not in 'but'; of a map's
 * element only the key is named. */
static void print_missing(const char *verb, const struct object *o, const struct omap *from,
                          const struct omap *but, bool is_key_only, struct buf *out)
{
    size_t n = 0;
    for (struct omap_node *node = omap_seek(from, STR("")); node; node = omap_next(node)) {
        struct str e = omap_key(node);
        if (but && omap_get(but, e)) {
            continue;
        }
        ptrdiff_t colon = is_key_only ? str_find_str(e, STR(" : ")) : -1;
        e.n = colon >= 0 ? (size_t)colon : e.n;
        if (n++ == 0) {
            buf_fmt(out, "%s element %.*s %.*s { ", verb, STR_ARG(o->table), STR_ARG(o->name));
        } else {
            buf_addc(out, ", ");
        }
        buf_add(out, e);
    }
    buf_addc(out, n ? " }\n" : "");
}

static void diff_elements(const char *verb, const struct object *was, const struct object *is,
                          struct buf *out)
{
    struct omap *a = split_elements(was ? was->body : STR("")),
                *b = split_elements(is ? is->body : STR(""));
    if (*verb == 'd') {
        print_missing(verb, was, a, b, true, out);
    } else {
        print_missing(verb, is, b, a, false, out);
    }
    omap_free(a, NULL);
    omap_free(b, NULL);
}

/* ---- the steps, in an order in which nothing refers to what is not there ---- */

static const struct object *in_doc(const struct doc *d, const struct object *o)
{
    return omap_get(d->by_key, o->key);
}

/* Neighbours of one table share its block: the library takes memory by the megabyte for
 * hundreds of blocks. */
static void print_block(const struct object *o, struct str inside, struct str *open_table,
                        struct buf *out)
{
    if (!str_eq(*open_table, o->table)) {
        buf_addc(out, open_table->n ? "}\n" : "");
        buf_fmt(out, "table %.*s {\n", STR_ARG(o->table));
        *open_table = o->table;
    }
    buf_fmt(out, " %.*s %.*s {\n", STR_ARG(o->kind), STR_ARG(o->name));
    buf_add(out, inside);
    buf_addc(out, " }\n");
}

static void close_block(struct str *open_table, struct buf *out)
{
    buf_addc(out, open_table->n ? "}\n" : "");
    *open_table = STR("");
}

static bool is_rewritten(const struct object *o, const struct object *other)
{
    return is_chain(o) && o->body.n && (!other || !str_eq(o->body, other->body));
}

static void remove_old(const struct doc *was, const struct doc *is, struct buf *out)
{
    for (int is_chains = 1; is_chains >= 0; is_chains--) { /* chains, then the sets they used */
        for (size_t i = 0; i < was->objects.n; i++) {
            const struct object *o = &was->objects.v[i];
            if (is_chain(o) == is_chains && !in_doc(is, o)) {
                buf_fmt(out, "delete %.*s %.*s %.*s\n", STR_ARG(o->kind), STR_ARG(o->table),
                        STR_ARG(o->name));
            }
        }
    }
}

static void steps(const struct doc *was, const struct doc *is, struct buf *out)
{
    struct str open_table = STR("");
    for (size_t i = 0; i < is->objects.n; i++) { /* new ones, empty */
        const struct object *o = &is->objects.v[i];
        if (!in_doc(was, o)) {
            print_block(o, o->head, &open_table, out);
        }
    }
    close_block(&open_table, out);
    for (size_t i = 0; i < was->objects.n; i++) { /* rules that go */
        const struct object *o = &was->objects.v[i];
        if (is_rewritten(o, in_doc(is, o))) {
            buf_fmt(out, "flush chain %.*s %.*s\n", STR_ARG(o->table), STR_ARG(o->name));
        }
    }
    for (size_t i = 0; i < was->objects.n; i++) {
        const struct object *o = &was->objects.v[i];
        if (!is_chain(o)) {
            diff_elements("delete", o, in_doc(is, o), out);
        }
    }
    for (size_t i = 0; i < is->objects.n; i++) {
        const struct object *o = &is->objects.v[i];
        if (!is_chain(o)) {
            diff_elements("add", in_doc(was, o), o, out);
        }
    }
    for (size_t i = 0; i < is->objects.n; i++) { /* rules that come */
        const struct object *o = &is->objects.v[i];
        if (is_rewritten(o, in_doc(was, o))) {
            print_block(o, o->body, &open_table, out);
        }
    }
    close_block(&open_table, out);
    remove_old(was, is, out);
}

static bool heads_agree(const struct doc *was, const struct doc *is)
{
    for (size_t i = 0; i < is->objects.n; i++) {
        const struct object *o = &is->objects.v[i], *old = in_doc(was, o);
        if (old && (!str_eq(o->head, old->head) || !str_eq(o->kind, old->kind))) {
            return false; /* another hook or type: that takes a new object of the same name */
        }
    }
    return true;
}

int rulediff(struct str old_text, struct str new_text, struct buf *out, struct err *err)
{
    struct doc was = {0}, is = {0};
    int r = read_doc(old_text, &was, err);
    r = r ? r : read_doc(new_text, &is, err);
    if (!r && !heads_agree(&was, &is)) {
        r = fail(err, -EINVAL, "BadRules", "an object changed its type");
    }
    if (!r) {
        steps(&was, &is, out);
    }
    doc_done(&was);
    doc_done(&is);
    return r;
}
