#include "vpcd/imds.h"

#include "base/num.h"
#include "codec/hex.h"
#include "codec/uri.h"
#include "vpcd/imds_token.h"
#include "vpcd/imds_tree.h"

#include <string.h>

/* Versions of the interface that AWS has published: all of them show the same table. */
static const char *const versions[] = {
    "1.0",        "2007-01-19", "2007-03-01", "2007-08-29", "2007-10-10", "2007-12-15",
    "2008-02-01", "2008-09-01", "2009-04-04", "2011-01-01", "2011-05-01", "2012-01-12",
    "2014-02-25", "2014-11-05", "2015-10-20", "2016-04-19", "2016-06-30", "2016-09-02",
    "2018-03-28", "2018-08-17", "2018-09-24", "2019-10-01", "2020-10-27", "2021-01-03",
    "2021-03-23", "2021-07-15", "2022-09-24", "2024-04-11", "latest",
};

static bool is_version(struct str s)
{
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        if (str_eqc(s, versions[i])) {
            return true;
        }
    }
    return false;
}

static void answer_error(struct imds_answer *out, struct arena *a, int status, const char *text)
{
    *out = (struct imds_answer){
        .status = status,
        .content_type = "text/html",
        .body = arena_fmt(
            a,
            "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n"
            "<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0 Transitional//EN\"\n"
            "\t\"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd\">\n"
            "<html xmlns=\"http://www.w3.org/1999/xhtml\" xml:lang=\"en\" lang=\"en\">\n"
            " <head>\n  <title>%d - %s</title>\n </head>\n <body>\n  <h1>%d - %s</h1>\n "
            "</body>\n</html>\n",
            status, text, status, text),
    };
}

static void answer_text(struct imds_answer *out, struct str body, const char *type)
{
    *out = (struct imds_answer){.status = 200, .content_type = type, .body = body};
}

struct key {
    uint8_t b[32];
};

static bool key_of(const struct facts *f, struct key *k)
{
    return !hex_decode(facts_vpc(f)->key, k->b, sizeof(k->b));
}

static struct str key_str(const struct key *k)
{
    return str_n((const char *)k->b, sizeof(k->b));
}

static void make_token(const struct facts *f, const struct fact_eni *eni,
                       const struct imds_request *r, struct arena *a, struct imds_answer *out)
{
    struct key key;
    uint64_t ttl = 0;
    if (r->is_forwarded) {
        answer_error(out, a, 403, "Forbidden");
    } else if (num_u64(r->ttl, IMDS_TTL_MAX_S, &ttl) || ttl == 0) {
        answer_error(out, a, 400, "Bad Request");
    } else if (!key_of(f, &key)) {
        answer_error(out, a, 500, "Internal Server Error");
    } else {
        answer_text(
            out,
            imds_token_make(a, key_str(&key), facts_vpc(f)->id, eni->inst.id, r->now_ns, ttl),
            "text/plain");
        out->ttl = r->ttl;
        out->is_hop_limited = true;
    }
}

static void answer_path(const struct facts *f, const struct fact_eni *eni, struct str path,
                        struct arena *a, struct imds_answer *out)
{
    struct imds_tree t;
    if (imds_tree_build(f, eni, a, &t)) {
        answer_error(out, a, 500, "Internal Server Error");
        return;
    }
    const struct imds_leaf *leaf = imds_tree_leaf(&t, path);
    if (leaf) {
        answer_text(out, leaf->value, leaf->type);
        return;
    }
    struct str list = imds_tree_list(&t, path);
    if (list.p) {
        answer_text(out, list, "text/plain");
        return;
    }
    answer_error(out, a, 404, "Not Found");
}

static void list_versions(struct arena *a, struct imds_answer *out)
{
    AUTO_BUF b;
    buf_init(&b, 4096);
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        buf_addc(&b, i ? "\n" : "");
        buf_addc(&b, versions[i]);
    }
    answer_text(out, arena_str_dup(a, buf_str(&b)), "text/plain");
}

/* The path without slashes at its ends, decoded. STR_NONE: it is not a path of ours. */
static struct str clean_path(struct arena *a, struct str path)
{
    struct str p = STR_NONE;
    if (path.n == 0 || path.p[0] != '/' || uri_decode(a, path, URI_PLAIN, &p)) {
        return STR_NONE;
    }
    p = str_skip(p, 1);
    while (p.n && p.p[p.n - 1] == '/') {
        p.n--;
    }
    return p.p ? p : STR("");
}

void imds_answer(const struct facts *f, const struct fact_eni *eni,
                 const struct imds_request *r, struct arena *a, struct imds_answer *out)
{
    const struct fact_inst *inst = &eni->inst;
    struct str path = clean_path(a, r->path);
    if (!inst->id.n) {
        answer_error(out, a, 404, "Not Found");
        return;
    }
    if (str_eqc(inst->http_endpoint, "disabled")) {
        answer_error(out, a, 403, "Forbidden");
        return;
    }
    if (!path.p) {
        answer_error(out, a, 400, "Bad Request");
        return;
    }
    struct str version = str_cut(path, '/'), rest = str_skip(path, version.n + 1);
    bool is_token_path = is_version(version) && str_eqc(rest, "api/token");
    if (is_token_path && str_eqc(r->method, "PUT")) {
        make_token(f, eni, r, a, out);
        return;
    }
    if (is_token_path || (!str_eqc(r->method, "GET") && !str_eqc(r->method, "HEAD"))) {
        answer_error(out, a, 405, "Method Not Allowed");
        return;
    }
    if (r->token.p || !str_eqc(inst->http_tokens, "optional")) {
        struct key key;
        if (!r->token.p || !key_of(f, &key) ||
            !imds_token_check(r->token, key_str(&key), facts_vpc(f)->id, inst->id, r->now_ns)) {
            answer_error(out, a, 401, "Unauthorized");
            return;
        }
    }
    if (path.n == 0) {
        list_versions(a, out);
    } else if (is_version(version)) {
        answer_path(f, eni, rest.p ? rest : STR(""), a, out);
    } else {
        answer_error(out, a, 404, "Not Found");
    }
}
