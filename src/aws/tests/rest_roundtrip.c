/* rest_roundtrip.c — the rest-xml codec as a filter, for rest_roundtrip_test.py: a line of JSON
 * in, a line of JSON out.
 *   {"mode": "in", "method", "path", "query", "headers": [[name, value]...], "body"}
 *       routes and decodes; gives {"op", "bucket", "key", "input": {...}}
 *   {"mode": "out", "op", "output": {...}}   encodes; gives {"status", "headers", "body"}
 *   {"mode": "error", "code", "text"}        the same of an error
 * What fails gives {"error", "text"}. Structures are shown with the model's names, times as
 * seconds. Not a test of its own. */
#include "aws/rest.h"
#include "base/time.h"
#include "codec/json.h"
#include <stdio.h>

static const struct aws_service *const s3 = &aws_service_s3;

struct any_list {
    char *v;
    size_t n;
    bool is_set;
};

/* ---- structures as JSON ---- */

static void dump_struct(const struct aws_shape *sh, const char *v, const char *name,
                        struct jw *w);

static void dump(const struct aws_shape *sh, const char *at, bool is_member, const char *name,
                 struct jw *w)
{
    const struct any_list *l = (const void *)at;
    const struct opt_i64 *i = (const void *)at;
    switch ((enum aws_type)sh->type) {
    case AWS_T_STR:
    case AWS_T_ENUM:
    case AWS_T_BLOB:
        if (((const struct str *)(const void *)at)->p) {
            jw_str(w, name, *(const struct str *)(const void *)at);
        }
        break;
    case AWS_T_BOOL:
        if (((const struct opt_bool *)(const void *)at)->is_set) {
            jw_bool(w, name, ((const struct opt_bool *)(const void *)at)->v);
        }
        break;
    case AWS_T_INT:
    case AWS_T_LONG:
        if (i->is_set) {
            jw_i64(w, name, i->v);
        }
        break;
    case AWS_T_TIME:
        if (((const struct opt_time *)(const void *)at)->is_set) {
            jw_u64(w, name, ((const struct opt_time *)(const void *)at)->ns / NS_PER_S);
        }
        break;
    case AWS_T_STRUCT:
        at = is_member ? *(char *const *)(const void *)at : at;
        if (at) {
            dump_struct(sh, at, name, w);
        }
        break;
    case AWS_T_LIST:
        if (l->is_set) {
            jw_arr(w, name);
            for (size_t k = 0; k < l->n; k++) {
                dump(&s3->shapes[sh->elem], l->v + k * sh->size, false, NULL, w);
            }
            jw_arr_end(w);
        }
        break;
    case AWS_T_MAP:
        if (l->is_set) {
            jw_obj(w, name);
            for (size_t k = 0; k < l->n; k++) {
                const struct s3_metadata_pair *p = (const void *)(l->v + k * sh->size);
                char key[256];
                snprintf(key, sizeof(key), "%.*s", STR_ARG(p->key));
                jw_str(w, key, p->value);
            }
            jw_obj_end(w);
        }
        break;
    case AWS_T_FLOAT:
    case AWS_T_DOUBLE: break;
    }
}

static void dump_struct(const struct aws_shape *sh, const char *v, const char *name,
                        struct jw *w)
{
    jw_obj(w, name);
    for (uint16_t i = 0; i < sh->n; i++) {
        const struct aws_member *m = &s3->members[sh->first + i];
        dump(&s3->shapes[m->shape], v + m->off, true, aws_name(s3, m->name), w);
    }
    jw_obj_end(w);
}

/* ---- JSON as structures ---- */

static void load(const struct aws_shape *sh, char *at, bool is_member, struct json *j,
                 struct arena *a);

static void load_struct(const struct aws_shape *sh, char *v, struct json *j, struct arena *a)
{
    for (uint16_t i = 0; i < sh->n; i++) {
        const struct aws_member *m = &s3->members[sh->first + i];
        struct json *value = json_get(j, aws_name(s3, m->name));
        if (value) {
            load(&s3->shapes[m->shape], v + m->off, true, value, a);
        }
    }
}

static void load_list(const struct aws_shape *sh, struct any_list *l, struct json *j,
                      struct arena *a)
{
    l->n = json_len(j);
    l->is_set = true;
    l->v = arena_xalloc(a, (l->n ? l->n : 1) * sh->size);
    for (size_t i = 0; i < l->n; i++) {
        if (sh->type == AWS_T_LIST) {
            load(&s3->shapes[sh->elem], l->v + i * sh->size, false, json_at(j, i), a);
            continue;
        }
        struct s3_metadata_pair *p = (void *)(l->v + i * sh->size);
        struct json *value = NULL;
        if (json_member(j, i, &p->key, &value)) {
            p->value = json_str(value);
        }
    }
}

static void load(const struct aws_shape *sh, char *at, bool is_member, struct json *j,
                 struct arena *a)
{
    switch ((enum aws_type)sh->type) {
    case AWS_T_STR:
    case AWS_T_ENUM:
    case AWS_T_BLOB: *(struct str *)(void *)at = json_str(j); break;
    case AWS_T_BOOL: *(struct opt_bool *)(void *)at = some_bool(json_bool(j, false)); break;
    case AWS_T_INT:
    case AWS_T_LONG: *(struct opt_i64 *)(void *)at = some_i64(json_i64(j, -1)); break;
    case AWS_T_TIME:
        *(struct opt_time *)(void *)at = some_time((uint64_t)json_i64(j, 0) * NS_PER_S);
        break;
    case AWS_T_STRUCT:
        if (is_member) {
            char *v = arena_xalloc(a, sh->size);
            *(char **)(void *)at = v;
            at = v;
        }
        load_struct(sh, at, j, a);
        break;
    case AWS_T_LIST:
    case AWS_T_MAP: load_list(sh, (void *)at, j, a); break;
    case AWS_T_FLOAT:
    case AWS_T_DOUBLE: break;
    }
}

/* ---- modes ---- */

static int decode(struct json *j, struct arena *a, struct jw *w, struct err *err)
{
    struct json *list = json_get(j, "headers");
    struct http_header *h = arena_xalloc(a, (json_len(list) + 1) * sizeof(*h));
    struct aws_http rq = {.method = json_get_str(j, "method"),
                          .path = json_get_str(j, "path"),
                          .query = json_get_str(j, "query"),
                          .body = json_get_str(j, "body"),
                          .headers = h,
                          .n_headers = json_len(list)};
    for (size_t i = 0; i < rq.n_headers; i++) {
        h[i] = (struct http_header){json_str(json_at(json_at(list, i), 0)),
                                    json_str(json_at(json_at(list, i), 1))};
    }
    static const struct str domain = {"s3.test", 7};
    const struct rest_opts o = {.domains = &domain, .n_domains = 1};
    struct rest_target t;
    void *input = NULL;
    int rc = rest_route(&o, &rq, a, &t, err);
    rc = rc < 0 ? rc : rest_decode(s3, t.op, &rq, &t, a, &input, err);
    if (rc < 0) {
        return rc;
    }
    jw_cstr(w, "op", rest_op_name(t.op));
    jw_str(w, "bucket", t.bucket);
    jw_str(w, "key", t.key);
    if (input) {
        dump_struct(&s3->shapes[s3->ops[t.op].in], input, "input", w);
    }
    return 0;
}

static void show(struct rest_answer *ans, struct jw *w)
{
    jw_i64(w, "status", ans->status);
    jw_arr(w, "headers");
    for (size_t i = 0; i < ans->n; i++) {
        jw_arr(w, NULL);
        jw_str(w, NULL, ans->headers[i].name);
        jw_str(w, NULL, ans->headers[i].value);
        jw_arr_end(w);
    }
    jw_arr_end(w);
    jw_str(w, "body", buf_str(&ans->body));
}

static int encode(struct json *j, struct arena *a, struct jw *w, struct err *err)
{
    AUTO(rest_answer_done) struct rest_answer ans;
    int op = aws_op_find(s3, json_get_str(j, "op"));
    rest_answer_init(&ans, a, STR("request-1"), STR("host-1"));
    if (op < 0) {
        return fail(err, -1, "BadLine", "no such operation");
    }
    void *out = NULL;
    if (s3->ops[op].out != AWS_SHAPE_NONE) {
        const struct aws_shape *sh = &s3->shapes[s3->ops[op].out];
        out = arena_xalloc(a, sh->size);
        load_struct(sh, out, json_get(j, "output"), a);
    }
    int rc = rest_encode(s3, op, out, a, &ans, err);
    if (rc == 0) {
        show(&ans, w);
    }
    return rc;
}

static int error(struct json *j, struct arena *a, struct jw *w, struct err *err)
{
    AUTO(rest_answer_done) struct rest_answer ans;
    struct err said = ERR_INIT;
    rest_answer_init(&ans, a, STR("request-1"), STR("host-1"));
    struct rest_target t = {
        .bucket = STR("b"), .key = STR("k & <k>"), .resource = STR("/b/k%20"), .sub = ""};
    fail(&said, -1, arena_cstr(a, json_get_str(j, "code")), "%s",
         arena_cstr(a, json_get_str(j, "text")));
    rest_error(&said, &t, STR("request-1"), STR("host-1"), &ans);
    show(&ans, w);
    return 0;
}

static int one(struct str line, struct arena *a, struct jw *w, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    int rc = json_parse(line, &j, err);
    if (rc < 0) {
        return rc;
    }
    struct str mode = json_get_str(j, "mode");
    return str_eqc(mode, "in")    ? decode(j, a, w, err)
           : str_eqc(mode, "out") ? encode(j, a, w, err)
                                  : error(j, a, w, err);
}

int main(void)
{
    AUTO_FREE char *line = NULL;
    AUTO(arena_freep) struct arena *a = arena_new(256u << 20);
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        AUTO_BUF out;
        struct err err = ERR_INIT;
        struct jw w;
        buf_init(&out, 64u << 20);
        jw_init(&w, &out);
        jw_obj(&w, NULL);
        if (one(str_trim(str_n(line, (size_t)n)), a, &w, &err) < 0) {
            jw_cstr(&w, "error", err.name);
            jw_cstr(&w, "text", err.msg);
        }
        jw_obj_end(&w);
        buf_addc(&out, "\n");
        fwrite(out.p, 1, out.n, stdout);
        fflush(stdout);
        arena_reset(a);
    }
    return 0;
}
