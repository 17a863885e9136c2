/* json.h — JSON in: a checked tree; JSON out: a writer into a buf.
 * Not here: records (rec.h). jansson is seen in json.c only.
 * Strict:   no duplicate members, whole numbers exact (int64_t), at most JSON_MAX_DEPTH deep.
 * Threads:  a tree belongs to one thread at a time.
 * Memory:   json_parse() gives; nodes and strings are borrowed until json_free().
 * Errors:   -EINVAL "BadJson" with line and column; getters answer NULL, STR_NONE or the
 *           default when the type differs. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include <stdint.h>

#define JSON_MAX_DEPTH 32

struct json; /* a node */

MUST_CHECK int json_parse(struct str text, struct json **ret, struct err *err);
void json_free(struct json *root); /* NULL is fine */
DEFINE_CLEANUP(struct json *, json_free);

enum json_type {
    JSON_T_NULL,
    JSON_T_BOOL,
    JSON_T_INT,
    JSON_T_REAL,
    JSON_T_STR,
    JSON_T_ARRAY,
    JSON_T_OBJECT
};
enum json_type json_type(const struct json *j);                    /* NULL -> JSON_T_NULL */
struct json *json_get(const struct json *obj, const char *member); /* NULL when absent */
struct json *json_at(const struct json *array, size_t idx);
size_t json_len(const struct json *array_or_object);
struct str json_str(const struct json *j);
int64_t json_i64(const struct json *j, int64_t dflt);
double json_f64(const struct json *j, double dflt); /* integers too */
bool json_bool(const struct json *j, bool dflt);
struct str json_get_str(const struct json *obj, const char *member);
uint64_t json_get_u64(const struct json *obj, const char *member, uint64_t dflt);
int64_t json_get_i64(const struct json *obj, const char *member, int64_t dflt);
bool json_get_bool(const struct json *obj, const char *member, bool dflt);
/* Members in the order of the text: 'void *pos = NULL; while (json_next(obj, &pos, &name,
 * &value))'. */
bool json_next(const struct json *obj, void **pos, struct str *ret_name,
               struct json **ret_value);
/* The same by index; walks from the start each time: for small objects. */
bool json_member(const struct json *obj, size_t idx, struct str *ret_name,
                 struct json **ret_value);
/* Appends the node as compact JSON. */
void json_dump(const struct json *j, struct buf *out);

/* Writer: commas and escapes are its work. name == NULL inside arrays and at the top. Bytes
 * that are not UTF-8 become U+FFFD. */
struct jw {
    struct buf *out;
    bool needs_comma;
};
void jw_init(struct jw *w, struct buf *out);
void jw_obj(struct jw *w, const char *name);
void jw_obj_end(struct jw *w);
void jw_arr(struct jw *w, const char *name);
void jw_arr_end(struct jw *w);
void jw_str(struct jw *w, const char *name, struct str v); /* absent: null */
void jw_cstr(struct jw *w, const char *name, const char *v);
void jw_u64(struct jw *w, const char *name,
            uint64_t v); /* json_parse() reads up to INT64_MAX */
void jw_i64(struct jw *w, const char *name, int64_t v);
void jw_bool(struct jw *w, const char *name, bool v);
void jw_null(struct jw *w, const char *name);
void jw_raw(struct jw *w, const char *name, struct str json); /* JSON that is already valid */
