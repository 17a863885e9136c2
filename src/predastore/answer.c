/* Answers: from outputs and errors to the HTTP server. */
#include "predastore/front_int.h"

#include "base/log.h"
#include "base/time.h"

#include <errno.h>
#include <stdio.h>

LOG_MODULE("predastore.s3");

static void count(struct front_call *fc, int status)
{
    if (status >= 500) {
        atomic_fetch_add_explicit(&fc->f->n_5xx, 1, memory_order_relaxed);
    } else if (status >= 400) {
        atomic_fetch_add_explicit(&fc->f->n_4xx, 1, memory_order_relaxed);
    }
}

static void respond(struct front_call *fc, bool is_stream, int64_t size)
{
    struct rest_answer *ans = &fc->c.answer;
    s3_cors_headers(&fc->c, ans);
    count(fc, ans->status);
    const struct http_answer a = {.status = ans->status,
                                  .headers = ans->headers,
                                  .n_headers = ans->n,
                                  .body = buf_str(&ans->body),
                                  .is_stream = is_stream,
                                  .stream_size = size};
    http_respond(fc->req, &a);
}

void front_send(struct front_call *fc)
{
    log_debug("request.done", KV_CSTR("op", rest_op_name(fc->c.t.op)),
              KV_STR("req", fc->c.request_id), KV_U64("status", fc->c.answer.status));
    respond(fc, false, 0);
}

void front_send_head(struct front_call *fc, int64_t size)
{
    respond(fc, true, size);
}

void front_finish(struct front_call *fc, const void *output)
{
    struct s3_call *c = &fc->c;
    struct err e = ERR_INIT;
    if (rest_encode(&aws_service_s3, c->t.op, c->is_encoded ? NULL : output, c->arena,
                    &c->answer, &e) < 0) {
        front_fail(fc, &e);
        return;
    }
    if (c->status) {
        c->answer.status = c->status;
    }
    front_send(fc);
}

/* Errors of the store that S3 has no code for, said so that a person can act on them. */
static void translate(const struct err *from, struct err *to)
{
    static const struct {
        const char *from, *code, *msg;
    } rows[] = {
        {"Locked", "ServiceUnavailable",
         "The object store is locked: its root key is not there. Unlock the node, then try "
         "again."},
        {"ReadOnly", "ServiceUnavailable",
         "The object store takes no changes: a part of its log is damaged. See 'spx admin "
         "storage check'."},
        {"TooFewDrives", "ServiceUnavailable",
         "Too few drives of the object store are well. See 'spx admin storage drives'."},
        {"Unavailable", "ServiceUnavailable", "A part of this service is not there yet."},
        {"RequestTooLarge", "InvalidRequest",
         "The request is larger than this service accepts."},
    };
    for (size_t i = 0; from->name && i < ARRAY_LEN(rows); i++) {
        if (strcmp(from->name, rows[i].from) == 0) {
            fail(to, from->code, rows[i].code, "%s", rows[i].msg);
            return;
        }
    }
    *to = *from;
    const char *text = from->msg[0] || !from->name ? NULL : rest_message(from->name);
    if (text) {
        snprintf(to->msg, sizeof(to->msg), "%s", text);
    }
}

static bool is_named(const struct s3_call *c, const char *name)
{
    for (size_t i = 0; i < c->t.extra.n; i++) {
        if (strcmp(c->t.extra.v[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void name_kind(struct front_call *fc)
{
    struct s3_call *c = &fc->c;
    bool is_marker =
        fc->n_fail_headers > 0 && str_ieqc(fc->fail_headers[0].name, "x-amz-delete-marker");
    rest_extra_add(&c->t.extra, "Method", c->rq.method);
    rest_extra_add(&c->t.extra, "ResourceType",
                   is_marker       ? STR("DeleteMarker")
                   : c->t.key.n    ? STR("OBJECT")
                   : c->t.bucket.n ? STR("BUCKET")
                                   : STR("SERVICE"));
}

/* Reads name the condition that failed where they find it; a write has one or the other. */
static void name_condition(struct s3_call *c)
{
    if (aws_http_header(&c->rq, "if-match").n) {
        rest_extra_add(&c->t.extra, "Condition", STR("If-Match"));
    } else if (aws_http_header(&c->rq, "if-none-match").n) {
        rest_extra_add(&c->t.extra, "Condition", STR("If-None-Match"));
    }
}

/* What AWS's bodies name beside the text. */
static void name_subject(struct front_call *fc, const struct err *e)
{
    struct s3_call *c = &fc->c;
    if (!e->name) {
        return;
    }
    if (strcmp(e->name, "NoSuchKey") == 0 && !is_named(c, "Key")) {
        rest_extra_add(&c->t.extra, "Key", c->t.key);
    } else if (strcmp(e->name, "NoSuchBucket") == 0 && !is_named(c, "BucketName")) {
        rest_extra_add(&c->t.extra, "BucketName", c->t.bucket);
    } else if (strcmp(e->name, "PreconditionFailed") == 0 && !is_named(c, "Condition")) {
        name_condition(c);
    } else if (strcmp(e->name, "MethodNotAllowed") == 0 && !is_named(c, "Method")) {
        name_kind(fc);
    } else if (strcmp(e->name, "InvalidStorageClass") == 0 &&
               !is_named(c, "StorageClassRequested")) {
        rest_extra_add(&c->t.extra, "StorageClassRequested",
                       aws_http_header(&c->rq, "x-amz-storage-class"));
    }
}

void front_fail(struct front_call *fc, const struct err *err)
{
    struct s3_call *c = &fc->c;
    struct err shown = ERR_INIT;
    translate(err, &shown);
    name_subject(fc, &shown);
    rest_answer_done(&c->answer);
    rest_error(&shown, &c->t, c->request_id, c->s3->host_id, &c->answer);
    for (size_t i = 0; i < fc->n_fail_headers; i++) {
        rest_header(&c->answer, arena_cstr(c->arena, fc->fail_headers[i].name),
                    fc->fail_headers[i].value);
    }
    fc->is_failed = true;
    if (c->answer.status >= 500 && c->answer.status != 501) {
        log_warn_rl("request.failed", KV_CSTR("op", rest_op_name(c->t.op)),
                    KV_STR("req", c->request_id), KV_U64("status", c->answer.status),
                    KV_ERR(err));
    } else {
        log_debug("request.refused", KV_CSTR("op", rest_op_name(c->t.op)),
                  KV_STR("req", c->request_id), KV_U64("status", c->answer.status),
                  KV_ERR(err));
    }
    respond(fc, false, 0);
}
