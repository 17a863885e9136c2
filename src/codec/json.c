#include "codec/json.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
/* jansson has a type of the name of our function. */
#define json_type jansson_type
#include <jansson.h>
#undef json_type

/* A struct json is a json_t under another name, so that jansson's header stays in this file. */

static json_t *jj(const struct json *j)
{
    return (json_t *)(uintptr_t)j;
}

static struct json *wrap(json_t *j)
{
    return (struct json *)(void *)j;
}

/* jansson allows 2048 levels and recurses; the limit here keeps stacks and later walks small.
 */
static bool is_too_deep(struct str text)
{
    unsigned depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (in_string) {
            if (c == '\\') {
                i++;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > JSON_MAX_DEPTH) {
                return true;
            }
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return false;
}

int json_parse(struct str text, struct json **ret, struct err *err)
{
    if (is_too_deep(text)) {
        return fail(err, -EINVAL, "BadJson", "JSON is nested deeper than %d levels",
                    JSON_MAX_DEPTH);
    }
    json_error_t e;
    json_t *j = json_loadb(text.p ? text.p : "", text.n,
                           JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (!j) {
        return fail(err, -EINVAL, "BadJson", "JSON line %d, column %d: %s", e.line, e.column,
                    e.text);
    }
    *ret = wrap(j);
    return 0;
}

void json_free(struct json *root)
{
    json_decref(jj(root));
}

enum json_type json_type(const struct json *j)
{
    if (!j) {
        return JSON_T_NULL;
    }
    switch (json_typeof(jj(j))) {
    case JSON_OBJECT: return JSON_T_OBJECT;
    case JSON_ARRAY: return JSON_T_ARRAY;
    case JSON_STRING: return JSON_T_STR;
    case JSON_INTEGER: return JSON_T_INT;
    case JSON_REAL: return JSON_T_REAL;
    case JSON_TRUE:
    case JSON_FALSE: return JSON_T_BOOL;
    case JSON_NULL: break;
    }
    return JSON_T_NULL;
}

struct json *json_get(const struct json *obj, const char *member)
{
    return obj ? wrap(json_object_get(jj(obj), member)) : NULL;
}

struct json *json_at(const struct json *array, size_t idx)
{
    return array ? wrap(json_array_get(jj(array), idx)) : NULL;
}

size_t json_len(const struct json *array_or_object)
{
    enum json_type t = json_type(array_or_object);
    return t == JSON_T_ARRAY    ? json_array_size(jj(array_or_object))
           : t == JSON_T_OBJECT ? json_object_size(jj(array_or_object))
                                : 0;
}

struct str json_str(const struct json *j)
{
    if (json_type(j) != JSON_T_STR) {
        return STR_NONE;
    }
    return str_n(json_string_value(jj(j)), json_string_length(jj(j)));
}

int64_t json_i64(const struct json *j, int64_t dflt)
{
    return json_type(j) == JSON_T_INT ? (int64_t)json_integer_value(jj(j)) : dflt;
}

double json_f64(const struct json *j, double dflt)
{
    enum json_type t = json_type(j);
    return t == JSON_T_INT || t == JSON_T_REAL ? json_number_value(jj(j)) : dflt;
}

bool json_bool(const struct json *j, bool dflt)
{
    return json_type(j) == JSON_T_BOOL ? json_is_true(jj(j)) : dflt;
}

struct str json_get_str(const struct json *obj, const char *member)
{
    return json_str(json_get(obj, member));
}

uint64_t json_get_u64(const struct json *obj, const char *member, uint64_t dflt)
{
    int64_t v = json_i64(json_get(obj, member), -1);
    return v >= 0 ? (uint64_t)v : dflt;
}

int64_t json_get_i64(const struct json *obj, const char *member, int64_t dflt)
{
    return json_i64(json_get(obj, member), dflt);
}

bool json_get_bool(const struct json *obj, const char *member, bool dflt)
{
    return json_bool(json_get(obj, member), dflt);
}

bool json_next(const struct json *obj, void **pos, struct str *ret_name,
               struct json **ret_value)
{
    json_t *o = jj(obj);
    if (json_type(obj) != JSON_T_OBJECT) {
        return false;
    }
    void *it = *pos ? json_object_iter_next(o, *pos) : json_object_iter(o);
    if (!it) {
        return false;
    }
    *pos = it;
    *ret_name = str_c(json_object_iter_key(it));
    *ret_value = wrap(json_object_iter_value(it));
    return true;
}

bool json_member(const struct json *obj, size_t idx, struct str *ret_name,
                 struct json **ret_value)
{
    void *pos = NULL;
    for (size_t i = 0; json_next(obj, &pos, ret_name, ret_value); i++) {
        if (i == idx) {
            return true;
        }
    }
    return false;
}

static void dump_real(double v, struct buf *out)
{
    char text[40];
    int n = snprintf(text, sizeof(text), "%.17g", v);
    assert(n > 0 && (size_t)n < sizeof(text));
    buf_add(out, str_n(text, (size_t)n));
    if (!strpbrk(text, ".eE")) {
        buf_addc(out, ".0"); /* stays a real when it is read again */
    }
}

static void add_escaped(struct buf *out, struct str s);

void json_dump(const struct json *j, struct buf *out)
{
    void *pos = NULL;
    struct str name = STR_NONE;
    struct json *value = NULL;
    switch (json_type(j)) {
    case JSON_T_NULL: buf_addc(out, "null"); break;
    case JSON_T_BOOL: buf_addc(out, json_bool(j, false) ? "true" : "false"); break;
    case JSON_T_INT: buf_fmt(out, "%" PRId64, json_i64(j, 0)); break;
    case JSON_T_REAL: dump_real(json_f64(j, 0), out); break;
    case JSON_T_STR: add_escaped(out, json_str(j)); break;
    case JSON_T_ARRAY:
        buf_add_char(out, '[');
        for (size_t i = 0; i < json_len(j); i++) {
            buf_addc(out, i ? "," : "");
            json_dump(json_at(j, i), out);
        }
        buf_add_char(out, ']');
        break;
    case JSON_T_OBJECT:
        buf_add_char(out, '{');
        for (bool more = json_next(j, &pos, &name, &value); more;) {
            add_escaped(out, name);
            buf_add_char(out, ':');
            json_dump(value, out);
            more = json_next(j, &pos, &name, &value);
            buf_addc(out, more ? "," : "");
        }
        buf_add_char(out, '}');
        break;
    }
}

/* Length of the UTF-8 sequence at p (RFC 3629: shortest form, no surrogates), 0 when it is
 * none. */
static size_t utf8_seq(const unsigned char *p, size_t n)
{
    static const struct {
        unsigned char first_min, first_max, second_min, second_max;
        size_t len;
    } rows[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (p[0] < rows[i].first_min || p[0] > rows[i].first_max) {
            continue;
        }
        if (rows[i].len > n ||
            (rows[i].len > 1 && (p[1] < rows[i].second_min || p[1] > rows[i].second_max))) {
            return 0;
        }
        for (size_t k = 2; k < rows[i].len; k++) {
            if ((p[k] & 0xc0) != 0x80) {
                return 0;
            }
        }
        return rows[i].len;
    }
    return 0;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void add_escaped(struct buf *out, struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    buf_add_char(out, '"');
    for (size_t i = 0; i < s.n;) {
        size_t run = i;
        while (run < s.n && is_plain(p[run])) {
            run++;
        }
        if (run > i) {
            buf_add(out, str_n(s.p + i, run - i));
            i = run;
            continue;
        }
        unsigned char c = p[i];
        size_t len = utf8_seq(p + i, s.n - i);
        if (len == 0) {
            buf_addc(out, "\xef\xbf\xbd");
            i++;
        } else if (len > 1) {
            buf_add(out, str_n(s.p + i, len));
            i += len;
        } else {
            i++;
            switch (c) {
            case '"': buf_addc(out, "\\\""); break;
            case '\\': buf_addc(out, "\\\\"); break;
            case '\n': buf_addc(out, "\\n"); break;
            case '\r': buf_addc(out, "\\r"); break;
            case '\t': buf_addc(out, "\\t"); break;
            default: buf_fmt(out, "\\u%04x", c); break;
            }
        }
    }
    buf_add_char(out, '"');
}

void jw_init(struct jw *w, struct buf *out)
{
    *w = (struct jw){.out = out};
}

static void start_value(struct jw *w, const char *name)
{
    if (w->needs_comma) {
        buf_add_char(w->out, ',');
    }
    if (name) {
        add_escaped(w->out, str_c(name));
        buf_add_char(w->out, ':');
    }
    w->needs_comma = true;
}

void jw_obj(struct jw *w, const char *name)
{
    start_value(w, name);
    buf_add_char(w->out, '{');
    w->needs_comma = false;
}

void jw_obj_end(struct jw *w)
{
    buf_add_char(w->out, '}');
    w->needs_comma = true;
}

void jw_arr(struct jw *w, const char *name)
{
    start_value(w, name);
    buf_add_char(w->out, '[');
    w->needs_comma = false;
}

void jw_arr_end(struct jw *w)
{
    buf_add_char(w->out, ']');
    w->needs_comma = true;
}

void jw_str(struct jw *w, const char *name, struct str v)
{
    start_value(w, name);
    if (str_is_set(v)) {
        add_escaped(w->out, v);
    } else {
        buf_addc(w->out, "null");
    }
}

void jw_cstr(struct jw *w, const char *name, const char *v)
{
    jw_str(w, name, str_c(v));
}

void jw_u64(struct jw *w, const char *name, uint64_t v)
{
    start_value(w, name);
    buf_fmt(w->out, "%" PRIu64, v);
}

void jw_i64(struct jw *w, const char *name, int64_t v)
{
    start_value(w, name);
    buf_fmt(w->out, "%" PRId64, v);
}

void jw_bool(struct jw *w, const char *name, bool v)
{
    start_value(w, name);
    buf_addc(w->out, v ? "true" : "false");
}

void jw_null(struct jw *w, const char *name)
{
    start_value(w, name);
    buf_addc(w->out, "null");
}

void jw_raw(struct jw *w, const char *name, struct str json)
{
    start_value(w, name);
    buf_add(w->out, json);
}
