#include "codec/rec.h"
#include "codec/json.h"
#include <errno.h>
#include <stdint.h>

/* How often records may nest; the tables are ours, so this is a mistake of the programmer. */
#define MAX_NEST 8

static int bad(struct err *err, const struct rec_desc *d, const char *member, const char *what)
{
    return fail(err, -EINVAL, "BadRecord", "%s record: member \"%s\" %s", d->name, member,
                what);
}

static int too_large(struct err *err, const struct rec_desc *d)
{
    return fail(err, -ENOMEM, "RecordTooLarge", "%s record does not fit into its arena",
                d->name);
}

static const struct rec_field *find_field(const struct rec_desc *d, struct str name)
{
    for (size_t i = 0; i < d->n_fields; i++) {
        if (str_eqc(name, d->fields[i].name)) {
            return &d->fields[i];
        }
    }
    return NULL;
}

static bool has_unknown(const struct rec_desc *d, const struct json *j)
{
    void *pos = NULL;
    struct str name = STR_NONE;
    struct json *value = NULL;
    while (json_next(j, &pos, &name, &value)) {
        if (!find_field(d, name)) {
            return true;
        }
    }
    return false;
}

static int load_str_list(const struct rec_desc *d, struct arena *a, const struct json *j,
                         const char *member, struct str_list *out, struct err *err)
{
    if (json_type(j) != JSON_T_ARRAY) {
        return bad(err, d, member, "is not a list");
    }
    size_t n = json_len(j);
    struct str *v = n ? arena_array(a, n, sizeof(*v)) : NULL;
    if (n && !v) {
        return too_large(err, d);
    }
    for (size_t i = 0; i < n; i++) {
        struct str s = json_str(json_at(j, i));
        if (!str_is_set(s)) {
            return bad(err, d, member, "holds something that is not a string");
        }
        v[i] = arena_str_dup(a, s);
        if (!str_is_set(v[i])) {
            return too_large(err, d);
        }
    }
    *out = (struct str_list){.v = v, .n = n};
    return 0;
}

static int load_obj(const struct rec_desc *d, struct arena *a, const struct json *j,
                    unsigned depth, void *out, struct err *err);

/* A nested record keeps its own text only when there is something in it that the table does not
 * know. */
static int load_sub(const struct rec_desc *d, struct arena *a, const struct json *j,
                    unsigned depth, void *out, struct err *err)
{
    int r = load_obj(d, a, j, depth, out, err);
    if (r < 0 || !has_unknown(d, j)) {
        return r;
    }
    AUTO_BUF text;
    buf_init(&text, 1u << 20);
    json_dump(j, &text);
    struct rec_head *head = out;
    head->raw = buf_ok(&text) ? arena_str_dup(a, buf_str(&text)) : STR_NONE;
    return str_is_set(head->raw) ? 0 : too_large(err, d);
}

static int load_obj_list(const struct rec_desc *d, struct arena *a, const struct json *j,
                         const struct rec_field *f, unsigned depth, void *out, struct err *err)
{
    struct {
        void *v;
        size_t n;
    } list = {0};
    if (json_type(j) != JSON_T_ARRAY) {
        return bad(err, d, f->name, "is not a list");
    }
    list.n = json_len(j);
    if (list.n) {
        list.v = arena_array(a, list.n, f->sub->size);
        if (!list.v) {
            return too_large(err, d);
        }
    }
    for (size_t i = 0; i < list.n; i++) {
        int r = load_sub(f->sub, a, json_at(j, i), depth + 1, (char *)list.v + i * f->sub->size,
                         err);
        if (r < 0) {
            return r;
        }
    }
    memcpy(out, &list, sizeof(list));
    return 0;
}

static int load_field(const struct rec_desc *d, struct arena *a, const struct json *j,
                      const struct rec_field *f, unsigned depth, void *p, struct err *err)
{
    switch (f->type) {
    case REC_STR: {
        struct str s = json_str(j);
        if (!str_is_set(s)) {
            return bad(err, d, f->name, "is not a string");
        }
        s = arena_str_dup(a, s);
        *(struct str *)p = s;
        return str_is_set(s) ? 0 : too_large(err, d);
    }
    case REC_U64:
        if (json_type(j) != JSON_T_INT || json_i64(j, -1) < 0) {
            return bad(err, d, f->name, "is not a whole number from 0 up");
        }
        *(uint64_t *)p = (uint64_t)json_i64(j, 0);
        return 0;
    case REC_I64:
        if (json_type(j) != JSON_T_INT) {
            return bad(err, d, f->name, "is not a whole number");
        }
        *(int64_t *)p = json_i64(j, 0);
        return 0;
    case REC_BOOL:
        if (json_type(j) != JSON_T_BOOL) {
            return bad(err, d, f->name, "is not true or false");
        }
        *(bool *)p = json_bool(j, false);
        return 0;
    case REC_STR_LIST: return load_str_list(d, a, j, f->name, p, err);
    case REC_OBJ: return load_sub(f->sub, a, j, depth + 1, p, err);
    case REC_OBJ_LIST: return load_obj_list(d, a, j, f, depth, p, err);
    }
    return bad(err, d, f->name, "has a type this program does not know");
}

static int load_obj(const struct rec_desc *d, struct arena *a, const struct json *j,
                    unsigned depth, void *out, struct err *err)
{
    if (json_type(j) != JSON_T_OBJECT || depth > MAX_NEST) {
        return fail(err, -EINVAL, "BadRecord", "%s record is not a JSON object", d->name);
    }
    for (size_t i = 0; i < d->n_fields; i++) {
        const struct rec_field *f = &d->fields[i];
        const struct json *m = json_get(j, f->name);
        if (json_type(m) == JSON_T_NULL) {
            continue;
        }
        int r = load_field(d, a, m, f, depth, (char *)out + f->off, err);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int rec_load(const struct rec_desc *d, struct arena *a, struct str json, void *out,
             struct err *err)
{
    memset(out, 0, d->size);
    AUTO(json_freep) struct json *j = NULL;
    int r = json_parse(json, &j, err);
    if (r < 0) {
        return err_context(err, r, "%s record", d->name);
    }
    r = load_obj(d, a, j, 0, out, err);
    if (r < 0) {
        memset(out, 0, d->size);
        return r;
    }
    struct rec_head *head = out;
    head->raw = arena_str_dup(a, json);
    return str_is_set(head->raw) ? 0 : too_large(err, d);
}

static int save_obj(const struct rec_desc *d, const void *in, const char *name, bool is_top,
                    unsigned depth, struct jw *w, struct err *err);

static int save_field(const struct rec_desc *d, const struct rec_field *f, const void *p,
                      unsigned depth, struct jw *w, struct err *err)
{
    switch (f->type) {
    case REC_STR:
        if (str_is_set(*(const struct str *)p)) {
            jw_str(w, f->name, *(const struct str *)p);
        }
        return 0;
    case REC_U64:
        if (*(const uint64_t *)p > INT64_MAX) {
            return bad(err, d, f->name, "is larger than 2^63 - 1");
        }
        jw_u64(w, f->name, *(const uint64_t *)p);
        return 0;
    case REC_I64: jw_i64(w, f->name, *(const int64_t *)p); return 0;
    case REC_BOOL: jw_bool(w, f->name, *(const bool *)p); return 0;
    case REC_STR_LIST: {
        const struct str_list *l = p;
        jw_arr(w, f->name);
        for (size_t i = 0; i < l->n; i++) {
            jw_str(w, NULL, str_is_set(l->v[i]) ? l->v[i] : STR(""));
        }
        jw_arr_end(w);
        return 0;
    }
    case REC_OBJ: return save_obj(f->sub, p, f->name, false, depth + 1, w, err);
    case REC_OBJ_LIST: {
        struct {
            const char *v;
            size_t n;
        } list;
        memcpy(&list, p, sizeof(list));
        jw_arr(w, f->name);
        for (size_t i = 0; i < list.n; i++) {
            int r = save_obj(f->sub, list.v + i * f->sub->size, NULL, false, depth + 1, w, err);
            if (r < 0) {
                return r;
            }
        }
        jw_arr_end(w);
        return 0;
    }
    }
    return bad(err, d, f->name, "has a type this program does not know");
}

static void save_unknown(const struct rec_desc *d, const struct json *old, bool is_top,
                         struct jw *w)
{
    void *pos = NULL;
    struct str name = STR_NONE;
    struct json *value = NULL;
    while (json_next(old, &pos, &name, &value)) {
        if (find_field(d, name) || (is_top && str_eqc(name, "v"))) {
            continue;
        }
        jw_raw(w, name.p, STR("")); /* names of jansson end in NUL; the value follows */
        json_dump(value, w->out);
    }
}

static int save_obj(const struct rec_desc *d, const void *in, const char *name, bool is_top,
                    unsigned depth, struct jw *w, struct err *err)
{
    if (depth > MAX_NEST) {
        return fail(err, -EINVAL, "BadRecord", "%s record is nested too deep", d->name);
    }
    AUTO(json_freep) struct json *old = NULL;
    const struct rec_head *head = in;
    if (str_is_set(head->raw)) {
        int r = json_parse(head->raw, &old, err);
        if (r < 0) {
            return err_context(err, r, "%s record", d->name);
        }
    }
    jw_obj(w, name);
    if (is_top) {
        /* A newer binary's version number stays: its members stay too. */
        jw_u64(w, "v", MAX(json_get_u64(old, "v", 0), d->version));
    }
    for (size_t i = 0; i < d->n_fields; i++) {
        const struct rec_field *f = &d->fields[i];
        int r = save_field(d, f, (const char *)in + f->off, depth, w, err);
        if (r < 0) {
            return r;
        }
    }
    save_unknown(d, old, is_top, w);
    jw_obj_end(w);
    return 0;
}

int rec_save(const struct rec_desc *d, const void *in, struct buf *out, struct err *err)
{
    struct jw w;
    jw_init(&w, out);
    size_t n_before = out->n;
    int r = save_obj(d, in, NULL, true, 0, &w, err);
    if (r == 0 && !buf_ok(out)) {
        r = fail(err, -E2BIG, "RecordTooLarge", "%s record is larger than its limit", d->name);
    }
    if (r < 0 && out->n > n_before) {
        out->n = n_before;
    }
    return r;
}
