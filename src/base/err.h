/* err.h — the one error convention: negative errno as the class, a stable word as the name.
 * Not here: the table from names to HTTP status (aws/errors), logging.
 * Threads:  a struct err belongs to its caller.
 * Memory:   'name' and 'hint' point to static strings; 'msg' is inside the struct.
 * Errors:   the first error wins: fail() on an err that is already set changes nothing. */
#pragma once
#include "base/macro.h"

#define ERR_MSG_MAX 640

struct err {
    int code;              /* negative errno, 0 = no error */
    const char *name;      /* stable word: "NoSuchKey", "InvalidInstanceID.NotFound" */
    const char *hint;      /* what a person can do about it, or NULL */
    char msg[ERR_MSG_MAX]; /* one sentence, no newline */
};

#define ERR_INIT  \
    {             \
        .code = 0 \
    }

/* Sets *err (which may be NULL) and returns 'code'. 'code' is negative. "%m" prints errno. */
int fail(struct err *err, int code, const char *name, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Adds a static hint to an error that is set; does nothing when err is NULL. Returns err->code.
 */
int err_hint(struct err *err, const char *hint);

/* Puts "context: " in front of the message. Returns err->code, or 'code' when err is NULL. */
int err_context(struct err *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

void err_clear(struct err *err);
