#include "aws/rest.h"

#include "aws/s3_name.h"
#include "codec/uri.h"
#include <errno.h>

struct needs {
    struct rest_need *v;
    size_t n;
};
enum { MAX_NEEDS = 6 };

static int no_memory(struct err *err)
{
    return fail(err, -ENOMEM, "MaxMessageLengthExceeded", "Your request was too large.");
}

static struct rest_need make(struct arena *a, struct str action, struct str bucket,
                             struct str key)
{
    /* Keys hold any byte: no formats. */
    static const struct str head = {"arn:aws:s3:::", 13};
    size_t n = head.n + bucket.n + 1 + key.n, at = head.n;
    char *p = arena_alloc(a, n + 1);
    if (!p) {
        return (struct rest_need){.action = STR_NONE, .arn = STR_NONE};
    }
    memcpy(p, head.p, head.n);
    if (bucket.n) {
        memcpy(p + at, bucket.p, bucket.n);
        at += bucket.n;
    }
    if (str_is_set(key)) {
        p[at++] = '/';
        if (key.n) {
            memcpy(p + at, key.p, key.n);
            at += key.n;
        }
    }
    return (struct rest_need){
        .action = arena_fmt(a, "s3:%.*s", STR_ARG(action)),
        .arn = str_is_set(bucket) ? str_n(p, at) : STR("*"),
    };
}

struct rest_need rest_need_key(struct arena *a, const char *action, struct str bucket,
                               struct str key)
{
    return make(a, str_c(action), bucket, key);
}

static void add(struct needs *l, struct arena *a, const char *action, struct str bucket,
                struct str key)
{
    if (l->n < MAX_NEEDS) {
        l->v[l->n++] = make(a, str_c(action), bucket, key);
    }
}

/* What reading the source of a copy needs. */
static int add_source(struct needs *l, struct arena *a, struct rest_target *t, struct str text,
                      struct err *err)
{
    struct s3_copy_source src;
    int rc = s3_copy_source_parse(a, text, &src, &t->extra, err);
    if (rc == 0) {
        add(l, a, str_is_set(src.version_id) ? "GetObjectVersion" : "GetObject", src.bucket,
            src.key);
    }
    return rc;
}

/* The source of a rename is a key of the same bucket: "key", "/key" or "/bucket/key", encoded.
 * What cannot be decoded is judged as it is; the handler refuses it. */
static struct str rename_key(struct arena *a, struct str bucket, struct str text)
{
    struct str key;
    if (uri_decode(a, text, URI_PLAIN, &key) < 0) {
        return text;
    }
    if (key.n > 0 && key.p[0] == '/') {
        key = str_skip(key, 1);
    }
    struct str head = str_cut(key, '/');
    return head.n < key.n && str_eq(head, bucket) ? str_skip(key, head.n + 1) : key;
}

static int add_others(struct needs *l, int op, struct rest_target *t, const void *input,
                      struct arena *a, struct err *err)
{
    bool has_version = str_is_set(aws_params_get(&t->query, "versionId"));
    if (op == S3_OP_COPY_OBJECT) {
        const struct s3_copy_object_request *in = input;
        if (str_eqc(in->tagging_directive, "REPLACE") && in->tagging.n) {
            add(l, a, "PutObjectTagging", t->bucket, t->key);
        }
        return add_source(l, a, t, in->copy_source, err);
    }
    if (op == S3_OP_UPLOAD_PART_COPY) {
        const struct s3_upload_part_copy_request *in = input;
        return add_source(l, a, t, in->copy_source, err);
    }
    if (op == S3_OP_RENAME_OBJECT) {
        const struct s3_rename_object_request *in = input;
        struct str key = rename_key(a, t->bucket, in->rename_source);
        add(l, a, "GetObject", t->bucket, key);
        add(l, a, "DeleteObject", t->bucket, key);
    } else if (op == S3_OP_PUT_OBJECT) {
        const struct s3_put_object_request *in = input;
        if (in->tagging.n) {
            add(l, a, "PutObjectTagging", t->bucket, t->key);
        }
    } else if (op == S3_OP_CREATE_MULTIPART_UPLOAD) {
        const struct s3_create_multipart_upload_request *in = input;
        if (in->tagging.n) {
            add(l, a, "PutObjectTagging", t->bucket, t->key);
        }
    } else if (op == S3_OP_GET_OBJECT_ATTRIBUTES) {
        add(l, a, has_version ? "GetObjectVersion" : "GetObject", t->bucket, t->key);
    }
    return 0;
}

int rest_needs(const struct aws_service *s, int op, struct rest_target *t, const void *input,
               struct arena *a, const struct rest_need **ret, size_t *ret_n, struct err *err)
{
    struct needs l = {.v = arena_alloc(a, MAX_NEEDS * sizeof(*l.v))};
    *ret = l.v;
    *ret_n = 0;
    if (!l.v) {
        return no_memory(err);
    }
    if (op == REST_OP_PREFLIGHT || op == S3_OP_DELETE_OBJECTS || op < 0) {
        return 0; /* nobody is asked; each key is */
    }
    if (op >= (int)s->n_ops) { /* a form: its key is in its body */
        return 0;
    }
    struct str action = str_c(aws_name(s, s->ops[op].action)), plain = str_cut(action, '/');
    if (plain.n < action.n && str_is_set(aws_params_get(&t->query, "versionId"))) {
        plain = str_skip(action, plain.n + 1);
    }
    l.v[l.n++] = make(a, plain, t->bucket, t->key);
    int rc = input ? add_others(&l, op, t, input, a, err) : 0;
    for (size_t i = 0; rc == 0 && i < l.n; i++) {
        if (!str_is_set(l.v[i].arn) || !str_is_set(l.v[i].action)) {
            rc = no_memory(err);
        }
    }
    *ret_n = l.n;
    return rc;
}
