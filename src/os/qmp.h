/* qmp.h — QEMU's machine protocol without any I/O: bytes in, messages out; commands built.
 * Not here: sockets, descriptors, what a command means (compute/mon_qmp.c).
 * Threads:  a struct qmp belongs to one thread.
 * Memory:   qmp_new() gives; a message is borrowed until the call-back returns.
 * Errors:   -EPROTO "BadQmp" for bytes that no QEMU sends, -EMSGSIZE for a line over the
 *           limit: the parser is broken for good then, and its owner drops the connection. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "codec/json.h"
#include <stdint.h>

/* Longer than any answer to a command that we send. */
#define QMP_MAX_LINE (512u << 10)
#define QMP_NO_ID    UINT64_MAX

enum qmp_type { QMP_GREETING, QMP_RETURN, QMP_ERROR, QMP_EVENT };

struct qmp_msg {
    enum qmp_type type;
    uint64_t id;     /* RETURN, ERROR: of the command; QMP_NO_ID when QEMU could not tell */
    struct str name; /* EVENT: its name; ERROR: its class */
    struct str desc; /* ERROR: a sentence */
    /* GREETING: the "QMP" member; RETURN: the value; EVENT: "data" or NULL */
    const struct json *data;
};
/* A negative answer stops the feed and is its result. */
typedef int (*qmp_fn)(void *ctx, const struct qmp_msg *msg);

struct qmp;
struct qmp *qmp_new(size_t max_line);
void qmp_free(struct qmp *q); /* NULL is fine */
DEFINE_CLEANUP(struct qmp *, qmp_free);

/* Takes any piece of the stream and calls 'fn' for each message that is complete. */
MUST_CHECK int qmp_feed(struct qmp *q, struct str bytes, qmp_fn fn, void *ctx, struct err *err);

/* Appends one command line. 'args' is a JSON object, or STR_NONE. 'id' is below INT64_MAX. */
void qmp_command(struct buf *out, const char *name, uint64_t id, struct str args);
