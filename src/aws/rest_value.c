#include "aws/rest_int.h"

#include "aws/validate.h"
#include "base/num.h"
#include "base/time.h"
#include "codec/base64.h"

bool rest_is_set(const struct aws_shape *sh, const void *at)
{
    switch ((enum aws_type)sh->type) {
    case AWS_T_STR:
    case AWS_T_ENUM:
    case AWS_T_BLOB: return ((const struct str *)at)->p != NULL;
    case AWS_T_BOOL: return ((const struct opt_bool *)at)->is_set;
    case AWS_T_INT:
    case AWS_T_LONG: return ((const struct opt_i64 *)at)->is_set;
    case AWS_T_FLOAT:
    case AWS_T_DOUBLE: return ((const struct opt_f64 *)at)->is_set;
    case AWS_T_TIME: return ((const struct opt_time *)at)->is_set;
    case AWS_T_LIST:
    case AWS_T_MAP: return ((const struct aws_any_list *)at)->is_set;
    case AWS_T_STRUCT: return *(void *const *)at != NULL;
    }
    return false;
}

static enum rest_set set_blob(struct str text, struct arena *a, struct str *to)
{
    AUTO_BUF out;
    buf_init(&out, text.n + 4);
    if (base64_decode(text, &out) < 0) {
        return REST_BAD;
    }
    *to = arena_str_dup(a, buf_str(&out));
    return to->p ? REST_OK : REST_FULL;
}

/* Clients write either form in either place. */
static enum rest_set set_time(unsigned ts, struct str text, struct opt_time *to)
{
    uint64_t ns = 0;
    bool is_http = ts == AWS_TS_RFC822;
    int rc = is_http ? time_parse_http(text, &ns) : time_parse_iso(text, &ns);
    if (rc < 0) {
        rc = is_http ? time_parse_iso(text, &ns) : time_parse_http(text, &ns);
    }
    *to = rc < 0 ? *to : some_time(ns);
    return rc < 0 ? REST_BAD : REST_OK;
}

enum rest_set rest_set_scalar(const struct aws_service *s, const struct aws_shape *sh,
                              unsigned flags, unsigned default_ts, struct str text,
                              struct arena *a, void *to)
{
    int64_t i = 0;
    bool is_int = sh->type == AWS_T_INT;
    unsigned ts = ((flags & AWS_F_TS) ? flags : sh->flags) & AWS_F_TS;
    switch ((enum aws_type)sh->type) {
    case AWS_T_STR: *(struct str *)to = text.p ? text : STR(""); return REST_OK;
    case AWS_T_ENUM:
        if (!(sh->flags & AWS_F_OPEN_ENUM) && !aws_enum_has(s, sh, text)) {
            return REST_BAD;
        }
        *(struct str *)to = text.p ? text : STR("");
        return REST_OK;
    case AWS_T_BOOL:
        if (!str_ieqc(text, "true") && !str_ieqc(text, "false")) {
            return REST_BAD;
        }
        *(struct opt_bool *)to = some_bool(str_ieqc(text, "true"));
        return REST_OK;
    case AWS_T_INT:
    case AWS_T_LONG:
        if (num_i64(text, is_int ? INT32_MIN : INT64_MIN, is_int ? INT32_MAX : INT64_MAX, &i) <
            0) {
            return REST_BAD;
        }
        *(struct opt_i64 *)to = some_i64(i);
        return REST_OK;
    case AWS_T_TIME: return set_time(ts ? ts >> 3 : default_ts, text, to);
    case AWS_T_BLOB: return set_blob(text, a, to);
    case AWS_T_FLOAT:  /* S3's model has none */
    case AWS_T_DOUBLE: /* ditto */
    case AWS_T_STRUCT:
    case AWS_T_LIST:
    case AWS_T_MAP: break;
    }
    return REST_BAD;
}

void *rest_list_next(const struct aws_shape *sh, void *list, struct arena *a)
{
    struct aws_any_list *l = list;
    /* Capacity is a power of two from 4: full when n is one. */
    bool is_full = l->n == 0 || (l->n >= 4 && (l->n & (l->n - 1)) == 0);
    if (l->n >= REST_MAX_ITEMS) {
        return NULL;
    }
    if (is_full) {
        void *v = arena_array(a, l->n ? l->n * 2 : 4, sh->size);
        if (!v) {
            return NULL;
        }
        if (l->n) {
            memcpy(v, l->v, l->n * sh->size);
        }
        l->v = v;
    }
    l->is_set = true;
    return (char *)l->v + l->n++ * sh->size;
}
