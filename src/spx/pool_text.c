#include "spx/pool_text.h"

#include "codec/toml.h"
#include "model/network.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define POOL_HEADER "[[network.external_pools]]"

enum where { OTHER, IN_NETWORK, IN_REPLACED, IN_RETIRED };

struct edit {
    const struct config *old;
    const struct pool_lan *lan;
    struct arena *a;
    struct buf *out;
    enum where where;
    size_t n_pools;
    bool has_uplink, has_source, is_added;
};

bool pool_lan_replaces(const struct pool_lan *lan, const struct config_pool *p)
{
    uint32_t first = 0, last = 0;
    return ip4_parse(str_c(p->range_start), &first) == 0 &&
           ip4_parse(str_c(p->range_end), &last) == 0 && first <= lan->last &&
           lan->first <= last;
}

static bool is_name_taken(const struct edit *e, const char *name)
{
    for (size_t i = 0; i < e->old->n_pools; i++) {
        if (!pool_lan_replaces(e->lan, &e->old->pools[i]) &&
            strcmp(e->old->pools[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void add_pool(struct edit *e)
{
    char name[32] = "lan";
    for (unsigned i = 2; is_name_taken(e, name); i++) {
        snprintf(name, sizeof(name), "lan%u", i);
    }
    buf_fmt(e->out, POOL_HEADER "\nname = \"%s\"\nsource = \"static\"\n", name);
    const struct {
        const char *key;
        uint32_t ip;
    } rows[] = {{"range_start", e->lan->first},
                {"range_end", e->lan->last},
                {"gateway", e->lan->gateway}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        buf_fmt(e->out, "%s = \"%.*s\"\n", rows[i].key, STR_ARG(ip4_fmt(e->a, rows[i].ip)));
    }
    buf_fmt(e->out, "prefix_len = %u\ndns_servers = [", e->lan->prefix_len);
    const struct config_pool *p = e->old->n_pools ? e->old->pools : NULL;
    for (size_t i = 0; p && i < p->n_dns_servers; i++) {
        buf_addc(e->out, i ? ", " : "");
        toml_quote(str_c(p->dns_servers[i]), e->out);
    }
    buf_addc(e->out, "]\n\n");
    e->is_added = true;
}

static void add_value(struct edit *e, const char *key, const char *value)
{
    buf_fmt(e->out, "%s = ", key);
    toml_quote(str_c(value), e->out);
}

static void leave(struct edit *e)
{
    if (e->where == IN_NETWORK && !e->has_uplink) {
        add_value(e, "uplink", e->lan->uplink);
        buf_addc(e->out, "\n\n");
        e->has_uplink = true;
    } else if (e->where == IN_RETIRED && !e->has_source) {
        buf_addc(e->out, "source = \"retired\"\n\n");
    }
    e->where = OTHER;
}

static struct str without_comment(struct str line)
{
    return str_trim(str_cut(line, '#'));
}

/* Returns true when the header's own line stays. */
static bool header(struct edit *e, struct str line)
{
    leave(e);
    struct str h = without_comment(line);
    if (str_eqc(h, "[network]")) {
        e->where = IN_NETWORK;
    } else if (str_eqc(h, POOL_HEADER)) {
        if (!e->is_added) {
            add_pool(e);
        }
        bool is_gone = e->n_pools < e->old->n_pools &&
                       pool_lan_replaces(e->lan, &e->old->pools[e->n_pools]);
        e->n_pools++;
        e->has_source = false;
        e->where = is_gone ? IN_REPLACED : IN_RETIRED;
        return !is_gone;
    }
    return true;
}

/* What follows the value of a line KEY = "VALUE" # ...; no value of these keys has a '#'. */
static struct str comment_of(struct str line)
{
    const char *p = memchr(line.p, '#', line.n);
    return p ? str_n(p, (size_t)(line.p + line.n - p)) : STR_NONE;
}

static bool is_key(struct str line, const char *key)
{
    struct str k = str_cut(line, '=');
    return k.n < line.n && str_eqc(str_trim(k), key);
}

static void set_line(struct edit *e, struct str line, const char *key, const char *value)
{
    struct str comment = comment_of(line);
    add_value(e, key, value);
    buf_fmt(e->out, "%s%.*s\n", comment.n ? " " : "", STR_ARG(comment));
}

static void one_line(struct edit *e, struct str line)
{
    struct str t = str_trim(line);
    bool is_text = t.n > 0 && t.p[0] != '#';
    if (is_text && t.p[0] == '[') {
        if (!header(e, t)) {
            return;
        }
    } else if (e->where == IN_NETWORK && is_key(line, "uplink")) {
        e->has_uplink = true;
        set_line(e, line, "uplink", e->lan->uplink);
        return;
    } else if (e->where == IN_RETIRED && is_key(line, "source")) {
        e->has_source = true;
        set_line(e, line, "source", "retired");
        return;
    } else if (e->where == IN_REPLACED && (is_text || t.n == 0)) {
        return;
    }
    buf_add(e->out, line);
    buf_add_char(e->out, '\n');
}

/* The text was changed by lines, without a parser: so what came out is parsed, and compared. */
static int verify(const char *file, const struct edit *e, struct err *err)
{
    AUTO(config_freep) struct config *c = NULL;
    struct err why = ERR_INIT;
    int r = config_parse(file, buf_str(e->out), &c, &why);
    size_t n = 1;
    for (size_t i = 0; i < e->old->n_pools; i++) {
        n += !pool_lan_replaces(e->lan, &e->old->pools[i]);
    }
    bool is_right =
        r == 0 && buf_ok(e->out) && c->n_pools == n && strcmp(c->uplink, e->lan->uplink) == 0 &&
        pool_lan_replaces(e->lan, &c->pools[0]) && strcmp(c->pools[0].source, "static") == 0;
    for (size_t i = 1; is_right && i < n; i++) {
        is_right = strcmp(c->pools[i].source, "retired") == 0;
    }
    if (is_right) {
        return 0;
    }
    r = fail(err, -EINVAL, "BadConfig", "%s is not written so that it can be changed%s%s", file,
             r ? ": " : "", r ? why.msg : "");
    err_hint(err, "change it by hand: docs/guides/lan.md says how");
    return r;
}

int pool_text_lan(const char *file, struct str text, const struct pool_lan *lan,
                  struct arena *a, struct buf *out, struct err *err)
{
    AUTO(config_freep) struct config *old = NULL;
    int r = config_parse(file, text, &old, err);
    if (r) {
        return r;
    }
    struct edit e = {.old = old, .lan = lan, .a = a, .out = out};
    while (text.n > 0) {
        struct str line = str_cut(text, '\n');
        text = str_skip(text, line.n + 1);
        one_line(&e, line);
    }
    leave(&e);
    if (!e.has_uplink) {
        buf_addc(out, "\n[network]\n");
        add_value(&e, "uplink", lan->uplink);
        buf_add_char(out, '\n');
    }
    if (!e.is_added) {
        buf_add_char(out, '\n');
        add_pool(&e);
    }
    return verify(file, &e, err);
}
