/* front_int.h — one request on its way, shared by the files that read, store and answer.
 * Not here: anything for handlers (s3.h).
 * Threads:  a request belongs to its loop's thread until it was handed to the pool or the store
 *           (is_with_others); that one answers it, and touches it no more after front_send(),
 *           front_fail() or front_finish().
 * Memory:   struct front_call is freed by on_done, with all it owns.
 * Errors:   front_fail() answers, once. */
#pragma once
#include "aws/policy.h"
#include "aws/s3_auth.h"
#include "aws/s3_chunked.h"
#include "aws/s3_form.h"
#include "aws/s3_sum.h"
#include "base/buf.h"
#include "base/share.h"
#include "loop/pool.h"
#include "net/http_server.h"
#include "predastore/front.h"
#include <pthread.h>
#include <stdatomic.h>

enum front_who { FRONT_CLIENT, FRONT_RELAYED, FRONT_SYSTEM };

struct front_door { /* what an HTTP server's call-backs get */
    struct front *f;
    struct http_server *server;
    bool is_unix;
};

struct front {
    struct front_opts o;
    struct s3 *s3;
    struct rest_opts rest;
    struct sigv4_opts sig;
    struct front_door tls, local;
    char *unix_path;
    uint64_t id_base;         /* of request ids */
    struct shares *collected; /* bytes of XML bodies in memory */
    struct strangers *strangers;
    atomic_uint_fast64_t n_requests, n_4xx, n_5xx, bytes_in, bytes_out;
};

/* Where the bytes of a body go. */
enum front_sink { SINK_DROP, SINK_XML, SINK_STORE, SINK_FORM };

struct intake {
    enum front_sink sink;
    bool is_chunked; /* aws-chunked */
    struct s3_chunked chunked;
    struct s3_sum_want want;
    struct s3_sum sum; /* SINK_STORE: filled by the store's threads */
    uint64_t expect;   /* payload bytes that were promised; UINT64_MAX: not known */
    uint64_t n_payload;
    struct buf xml; /* SINK_XML */
    struct share_hold hold;
    struct oput *put;
};

struct reading { /* the body of an answer, while it is sent (get.c) */
    struct oversion version;
    struct oread *r;
    uint64_t off, left;
    bool is_gone;  /* GUARDED_BY(mu): the client is */
    bool is_begun; /* GUARDED_BY(mu): the head of the answer is out */
    bool is_job;   /* GUARDED_BY(mu): a pool thread reads */
    bool is_over;  /* GUARDED_BY(mu): nothing more is said to the server */
    pthread_mutex_t mu;
};

struct front_call {
    struct s3_call c;
    struct front *f;
    struct http_req *req;
    enum front_who kind;
    struct s3_auth auth;
    const void *input;
    bool is_prepared;       /* get.c: all but the body is known */
    int64_t head_length;    /* get.c: what HEAD says of the body */
    struct str unknown_key; /* the id, when that is why it was not authenticated */
    bool is_asked;          /* paused for that, once (ask.c) */
    bool is_failed;         /* answered with an error: what else comes of the body is dropped */
    struct intake in;
    struct reading rd;
    struct ochange change; /* PUT, PART */
    void (*on_committed)(struct front_call *fc);
    struct s3_sum_result sums;
    struct http_header fail_headers[4]; /* more headers of an error */
    size_t n_fail_headers;
    /* POST form */
    struct s3_form *form;
    struct s3_form_upload upload;
    bool is_form_checked;
};

/* ---- answers (answer.c) ---- */

/* Sends c->answer; nothing of 'fc' may be touched after. */
void front_send(struct front_call *fc);
/* Encodes the output of the operation and sends. */
void front_finish(struct front_call *fc, const void *output);
/* Answers with the error. */
void front_fail(struct front_call *fc, const struct err *err);
/* c->answer is complete but for the body, which follows by http_body_give(). size: of it. */
void front_send_head(struct front_call *fc, int64_t size);

/* ---- who (who.c) ---- */

/* Route, authentication, bucket, owner. After it c->who, c->t, c->bucket are set. */
MUST_CHECK int front_identify(struct front_call *fc, struct err *err);
/* Who counts as one client beside the account: an address, or a network (/64) of IPv6. */
struct str front_address(const struct s3_call *c);
/* May c->who do the operation with this input? */
MUST_CHECK int front_authorize(struct front_call *fc, const void *input, struct err *err);
/* The bucket (referenced), when it is the caller's: "NoSuchBucket", "AccessDenied". 'owner':
 * x-amz-expected-bucket-owner or STR_NONE. */
MUST_CHECK int front_bucket(const struct s3_call *c, struct str name, struct str owner,
                            const struct obucket **ret, struct err *err);

/* After front_identify() has failed: true when that is not the end; the request is touched no
 * more, front_begin_again() follows, or it was answered. On the loop's thread, from on_head. */
bool front_ask_key(struct front_call *fc);
void front_begin_again(struct front_call *fc);

/* ---- bodies that come (intake.c) ---- */

/* Before the first byte: framing, checksums wanted, length. 'max': of the payload. */
MUST_CHECK int intake_begin(struct front_call *fc, enum front_sink sink, uint64_t max,
                            unsigned sum_flags, enum s3_sum_alg default_alg, struct err *err);
/* The sink of SINK_STORE; bytes may follow. */
MUST_CHECK int intake_open(struct front_call *fc, struct err *err);
enum http_flow intake_body(struct front_call *fc, struct str chunk);
/* The body is over: framing and length. */
MUST_CHECK int intake_end(struct front_call *fc, struct err *err);
/* After all bytes went through: compares sums; fc->sums. Any thread. */
MUST_CHECK int intake_sums(struct front_call *fc, struct err *err);
void intake_done(struct front_call *fc);
/* Payload that was unframed elsewhere (forms). */
MUST_CHECK int intake_add(struct front_call *fc, struct str bytes, bool *ret_wait,
                          struct err *err);

/* ---- operations whose bodies are streams ---- */

/* On the head: checks all, opens the intake. */
void put_start(struct front_call *fc);
void put_end(struct front_call *fc);
void part_start(struct front_call *fc);
void form_start(struct front_call *fc);
enum http_flow form_body(struct front_call *fc, struct str chunk);
void form_end(struct front_call *fc);
/* fc->change is complete but for size, etag and sum; the body is in fc->in. Commits, then
 * 'answer' is called on the loop's thread. */
void put_commit(struct front_call *fc, void (*answer)(struct front_call *fc));

/* fc->change without a body: done by the store, then 'answer' on the loop's thread. */
void front_change(struct front_call *fc, void (*answer)(struct front_call *fc));
/* If-Match and If-None-Match of a write. */
void front_cond(const struct s3_call *c, struct ochange_if *ret);
/* Size and time of the version that a delete means. */
MUST_CHECK int front_cond_more(struct opt_i64 size, struct opt_time mtime,
                               struct ochange_if *ret, struct err *err);
/* x-amz-server-side-encryption of what is written now, or of a body. */
struct str front_sse(const struct s3_call *c, bool is_sealed);

void get_start(struct front_call *fc);
void get_aborted(struct front_call *fc);
void reading_done(struct front_call *fc);
/* DeleteObject, whose change the store does while nobody waits. */
void delete_start(struct front_call *fc);

/* Runs fn on the pool, or answers SlowDown. */
void front_submit(struct front_call *fc, struct pool *pool, void (*fn)(void *fc));
