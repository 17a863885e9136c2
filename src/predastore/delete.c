/* DeleteObjects: up to 1,000 deletes at once. They are started together, so that they share the
 * store's syncs, and judged one by one. */
#include "predastore/front_int.h"
#include "predastore/ops.h"

#include "aws/policy.h"
#include "aws/s3_cond.h"

#include <errno.h>
#include <pthread.h>

#define KEYS_MAX 1000u

struct removal {
    struct ochange change;
    struct crowd *crowd;
    struct err err; /* code 0: started */
};

struct crowd {
    pthread_mutex_t mu;
    pthread_cond_t cond;
    size_t n_left; /* GUARDED_BY(mu) */
};

static void on_done(struct ochange *ch)
{
    struct crowd *crowd = ((struct removal *)ch->ctx)->crowd;
    pthread_mutex_lock(&crowd->mu);
    crowd->n_left--;
    pthread_cond_signal(&crowd->cond);
    pthread_mutex_unlock(&crowd->mu);
}

static int allow(struct s3_call *c, const struct s3_object_identifier *o, struct err *err)
{
    const char *action = str_is_set(o->version_id) ? "DeleteObjectVersion" : "DeleteObject";
    struct rest_need need = rest_need_key(c->arena, action, c->bucket->name, o->key);
    const struct aws_authz z = {
        .who = &c->who, .action = need.action, .arns = &need.arn, .n_arns = 1};
    return c->is_system
               ? 0
               : aws_authorize(&z, &aws_service_s3, aws_policy_builtin, NULL, c->arena, err);
}

static int prepare(struct s3_call *c, const struct s3_object_identifier *o, struct removal *m)
{
    struct ochange *ch = &m->change;
    struct err *err = &m->err;
    s3_change_init(c, ch, OCHANGE_DELETE);
    ch->rec.key = o->key;
    ch->done = on_done;
    ch->ctx = m;
    if (o->key.n > OREC_KEY_MAX) {
        return fail(err, -EINVAL, "KeyTooLongError", "%s", "");
    }
    if (str_is_set(o->version_id)) {
        ch->is_version = true;
        if (oversion_parse(o->version_id, ch->rec.version) < 0) {
            return fail(err, -ENOENT, "NoSuchVersion", "%s", "");
        }
    }
    if (o->e_tag.n) {
        ch->cond.match = s3_etag_bare(o->e_tag);
    }
    int r = front_cond_more(o->size, o->last_modified_time, &ch->cond, err);
    return r < 0 ? r : allow(c, o, err);
}

static void run_all(struct s3_call *c, const struct s3_object_identifier_list *list,
                    struct removal *v)
{
    struct crowd crowd = {.mu = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    for (size_t i = 0; i < list->n; i++) {
        v[i].crowd = &crowd;
        if (prepare(c, &list->v[i], &v[i]) < 0) {
            continue;
        }
        pthread_mutex_lock(&crowd.mu);
        crowd.n_left++;
        pthread_mutex_unlock(&crowd.mu);
        ochange_start(c->store, &v[i].change);
    }
    pthread_mutex_lock(&crowd.mu);
    while (crowd.n_left > 0) {
        pthread_cond_wait(&crowd.cond, &crowd.mu);
    }
    pthread_mutex_unlock(&crowd.mu);
    pthread_cond_destroy(&crowd.cond);
    pthread_mutex_destroy(&crowd.mu);
}

/* What failed, in the words of S3; NULL: it is gone (also when it was not there). */
static const struct err *failure(const struct removal *m)
{
    if (m->err.code != 0) {
        return &m->err;
    }
    return m->change.rc == 0 ? NULL : &m->change.err;
}

static void show_failure(struct s3_call *c, const struct s3_object_identifier *o,
                         const struct err *e, struct s3_error *out)
{
    const char *code = rest_code(e);
    const char *usual = rest_message(code);
    bool is_ours = e->name && strcmp(code, e->name) == 0;
    out->key = o->key;
    out->version_id = o->version_id;
    out->code = str_c(code);
    out->message = is_ours && e->msg[0] ? arena_str_dup(c->arena, str_c(e->msg))
                                        : str_c(usual ? usual : "");
}

static void show_done(struct s3_call *c, const struct s3_object_identifier *o,
                      const struct ochange *ch, struct s3_deleted_object *out)
{
    out->key = o->key;
    out->version_id = o->version_id;
    if (ch->is_marker) {
        out->delete_marker = some_bool(true);
        out->delete_marker_version_id =
            ch->is_version ? o->version_id : s3_version_text(c->arena, ch->version);
    }
}

int op_delete_objects(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_delete_objects_request *in = input;
    struct s3_delete_objects_output *out = output;
    if (!in->delete || in->delete->objects.n == 0 || in->delete->objects.n > KEYS_MAX) {
        return fail(err, -EINVAL, "MalformedXML", "%s", "");
    }
    const struct s3_object_identifier_list *list = &in->delete->objects;
    bool is_quiet = in->delete->quiet.is_set && in->delete->quiet.v;
    for (size_t i = 0; i < list->n; i++) {
        if (!list->v[i].key.n) {
            return fail(err, -EINVAL, "UserKeyMustBeSpecified", "%s", "");
        }
    }
    /* Not in the arena's first megabyte: an err is large. */
    AUTO_FREE struct removal *v = calloc(list->n, sizeof(*v));
    if (!v) {
        return fail(err, -ENOMEM, "SlowDown", "%s", "");
    }
    run_all(c, list, v);
    AWS_LIST_MAKE(c->arena, &out->deleted, list->n);
    AWS_LIST_MAKE(c->arena, &out->errors, list->n);
    out->deleted.n = out->errors.n = 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct err *e = failure(&v[i]);
        if (e) {
            show_failure(c, &list->v[i], e, &out->errors.v[out->errors.n++]);
        } else if (!is_quiet) {
            show_done(c, &list->v[i], &v[i].change, &out->deleted.v[out->deleted.n++]);
        }
    }
    out->deleted.is_set = out->deleted.n > 0;
    out->errors.is_set = out->errors.n > 0;
    return 0;
}
